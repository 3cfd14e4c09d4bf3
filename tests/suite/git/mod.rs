//! Git sources against real repositories, made with the `git` program.

mod fixture;
mod server;
mod local;
mod refusals;
mod remote;
mod ssh;
mod authoring;
mod watching;
mod isolation;
mod rendering;
