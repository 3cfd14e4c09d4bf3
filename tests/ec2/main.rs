//! The AWS provider over the real wire: moto behind tests/emulator, which adds what EC2 does and moto does not.

#![allow(clippy::disallowed_methods, reason = "tests wait, and measure what they wait for")]

mod emulator;
mod wire;
mod launching;
mod interruption;
mod resolving;
mod refreshing;
mod permissions;

// A whole cluster on it: the control plane and the bench of the other tests, and machines that join.
mod deploy;
mod git;
#[allow(dead_code, unused_imports, reason = "the suite uses the rest")]
#[path = "../suite/plane/mod.rs"]
mod plane;
#[allow(dead_code, unused_imports, reason = "the suite uses the rest")]
#[path = "../suite/live/bench.rs"]
mod bench;
#[allow(dead_code, unused_imports, reason = "the suite uses the rest")]
#[path = "../suite/live/moments.rs"]
mod moments;
#[path = "../suite/live/story.rs"]
mod story;
#[path = "../suite/live/mixed.rs"]
mod mixed;
mod userdata;
mod kubelets;
mod region;
mod belongings;
mod guide;
mod commit;
mod scarcity;
mod families;
mod replicas;
mod crash;
