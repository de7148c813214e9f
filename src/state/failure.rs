//! Trouble with the state's own files, as [`Failure`](crate::protocol::answer::Failure)s.

pub(crate) use crate::system::failed;
