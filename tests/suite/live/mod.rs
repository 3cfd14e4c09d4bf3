//! Provisor on a real control plane with simulated machines: from a commit to bound pods, and back to nothing.

mod bench;
mod moments;
mod story;
mod mixed;
mod peer;
mod chronicle;
mod kubelets;
mod replicas;
mod whole;
mod nominations;
mod crash;
mod rest;
mod refused;
mod confirm;
mod restricted;
mod start;
mod held;
mod headroom;
mod unreadable;
mod deadline;
mod recording;
mod drain;
mod order;
mod volumes;
mod rolling;
mod ageing;
