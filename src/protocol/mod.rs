//! The protocol: pure state machines without any IO.

pub mod answer;
pub mod id;
pub mod time;
