//! One test binary: scenarios, properties, simulation, contracts and the command line.

mod catalogue;
mod git;
