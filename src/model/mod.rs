//! The words everything else is written in.

pub mod visible;
pub mod symbol;
pub(crate) mod hash;
pub(crate) mod near;
pub mod quantity;
pub mod money;
pub mod time;
pub mod name;
pub mod label;
pub mod owner;
pub mod requirement;
pub mod taint;
pub mod offering;
pub mod condition;
pub mod pool;
pub mod class;
pub mod claim;
pub mod node;
pub mod pod;
pub mod workload;
pub mod buffer;
pub mod catalog;
pub mod history;
pub mod repository;
pub mod observation;
pub mod action;
