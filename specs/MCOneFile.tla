----------------------------- MODULE MCOneFile -----------------------------
(* Bounds of OneFile stand in the configuration files named after this module. *)
EXTENDS OneFile
=============================================================================
