//! The deterministic simulator of stillpoint.
