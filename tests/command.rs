//! The `stillpoint` command.
