//! Git sources against real repositories, made with the `git` program.

pub mod fixture;
mod server;
mod tls;
mod local;
mod refusals;
mod broken;
mod remote;
mod revisions;
mod ssh;
mod sshd;
mod access;
mod authoring;
mod watching;
mod following;
mod isolation;
mod rendering;
