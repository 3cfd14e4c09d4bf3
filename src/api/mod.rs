//! Kubernetes objects as they are on the wire, parsed into the model.
