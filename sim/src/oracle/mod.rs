//! What the outside knows, kept without the protocol's code: the durable truth, what users saw, and
//! what a run without failures would have shown them.

pub mod durable;
pub mod facts;
pub mod history;
pub mod twin;
