//! What the outside knows: the durable truth, kept without the protocol's code.

pub mod durable;
pub mod facts;
