//! Git sources against real repositories, made with the `git` program.

mod fixture;
mod local;
mod refusals;
mod authoring;
mod watching;
