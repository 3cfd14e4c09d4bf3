//! The words everything else is written in.

pub mod repository;
