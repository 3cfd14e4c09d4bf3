//! What is said to AWS and heard from it, as far as it can be judged without a cloud.

mod account;
mod events;
