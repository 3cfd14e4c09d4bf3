//! Which pod goes where: the rows of the catalogue about placement, each as a small cluster.

mod world;

mod basics;
mod labels;
mod requirements;
mod ports;
mod limits;
mod priority;
mod daemons;
mod containers;
mod taints;
mod preferences;
mod pools;
mod spread;
mod defaults;
mod affinity;
mod packing;
mod bill;
mod min_values;
mod nodes;
mod picture;
mod volumes;
mod zones;
mod reserved;
mod properties;
