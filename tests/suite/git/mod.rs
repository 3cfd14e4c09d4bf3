//! Git sources against real repositories, made with the `git` program.

mod fixture;
mod server;
mod local;
mod refusals;
mod remote;
mod ssh;
mod authoring;
mod watching;
mod following;
mod isolation;
mod rendering;
