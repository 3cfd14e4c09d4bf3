//! The same decisions in memory: virtual clock, seeded chance.
