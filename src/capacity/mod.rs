//! Pending pod → running node → gone.
