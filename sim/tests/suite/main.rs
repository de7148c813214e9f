//! The suites for users' stores and state backends: on what the library and the simulator have, and
//! on what is broken on purpose.

mod backends;
mod defects;
mod stores;
