//! Which pod goes where: the rows of the catalogue about placement, each as a small cluster.

mod world;

mod basics;
mod labels;
mod limits;
mod daemons;
mod preferences;
mod pools;
mod spread;
mod affinity;
mod packing;
mod min_values;
mod nodes;
mod volumes;
mod reserved;
