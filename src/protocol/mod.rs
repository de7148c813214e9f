//! The protocol: pure state machines without any IO.
