--------------------------- MODULE MCAtomicCommit ---------------------------
(* Bounds of AtomicCommit stand in the configuration file named after this module. *)
EXTENDS AtomicCommit
=============================================================================
