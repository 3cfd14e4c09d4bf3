//! The AWS provider over the real wire: moto behind tests/emulator, which adds what EC2 does and moto does not.

mod emulator;
mod wire;
mod launching;
mod interruption;
mod resolving;
mod refreshing;
mod permissions;
