------------------------- MODULE MCOneFileRefinement -------------------------
(* CheckpointLifecycle is OneFile to each file and subtask: every step of the one is a step of the
   other, or none. Bounds stand in the configuration files named after this module. *)
EXTENDS CheckpointLifecycle

Led == IF m.epoch = 0 THEN NoLeader ELSE ld[m.epoch]
\* The attempt that the manifest names for a subtask, and the one that made a file.
AttemptOf(t) == IF m.att[t] = None THEN NoAttempt ELSE at[m.att[t]]
MakerOf(f)   == IF creator[f] = None THEN NoAttempt ELSE at[creator[f]]
\* A file is nothing to another subtask.
MadeFor(f, t) == creator[f] # None /\ at[creator[f]].task = t
FollowsLed(t) == m.att[t] # None /\ at[m.att[t]].epoch = m.epoch
With(set, f) == IF f \in set THEN "with" ELSE "without"

Snaps(f, t) == [c \in Ckpts |->
  LET found == { s \in AttemptOf(t).snaps : s.id = c } IN
  IF ~FollowsLed(t) \/ found = {} THEN "no" ELSE With((CHOOSE s \in found : TRUE).files, f)]
Acks(f, t) == [c \in Ckpts |->
  LET found == { k \in acks : k.id = c /\ k.task = t /\ k.att = m.att[t] /\ k.epoch = m.epoch } IN
  IF found = {} THEN "no" ELSE With((CHOOSE k \in found : TRUE).cut, f)]
Pending(f, t) == [c \in Ckpts |->
  LET found == { p \in Led.pend : p.id = c } IN
  IF found = {} THEN "no"
  ELSE LET got == (CHOOSE p \in found : TRUE).got[t] IN IF got.ok THEN With(got.cut, f) ELSE "waiting"]

One(f, t) == INSTANCE OneFile WITH
  HeldOpen <- {},     \* so that a guard held open here is missed there
  ids      <- m.ids,
  held     <- { c \in m.ids : f \in FilesOf(m, c, t) },
  head     <- m.head,
  once     <- \E c \in Ckpts : f \in cuts[c][t],
  released <- MadeFor(f, t) /\ f \in m.released,
  tomb     <- MadeFor(f, t) /\ f \in m.tomb,
  object   <- MadeFor(f, t) /\ f \in objects,
  stale    <- MadeFor(f, t) /\ \E e \in Epochs : e # m.epoch /\ ld[e].up /\ f \in ld[e].sees.tomb,
  maker    <- IF ~MadeFor(f, t) THEN "nobody" ELSE IF creator[f] = m.att[t] THEN "named" ELSE "replaced",
  goes     <- MadeFor(f, t) /\ creator[f] # m.att[t] /\ MakerOf(f).st = "run",
  st       <- IF AttemptOf(t).st = "gone" THEN "dead" ELSE AttemptOf(t).st,
  follows  <- FollowsLed(t),
  has      <- IF f \in AttemptOf(t).live \cup (IF AttemptOf(t).st = "restoring" THEN AttemptOf(t).restored ELSE {})
              THEN "live" ELSE IF f \in AttemptOf(t).left THEN "left" ELSE "no",
  lastSnap <- AttemptOf(t).lastSnap,
  snaps    <- Snaps(f, t),
  acks     <- Acks(f, t),
  uploaded <- MadeFor(f, t) /\ f \in MakerOf(f).remote \cup MakerOf(f).sent,
  sent     <- MadeFor(f, t) /\ f \in MakerOf(f).sent,
  pend     <- Pending(f, t),
  staged   <- IF MadeFor(f, t) THEN Led.staged[f] ELSE None,
  orphan   <- MadeFor(f, t) /\ f \in Led.orphans,
  lastAck  <- Led.lastAck[t]

RefinesOneFile ==
  /\ \A f \in Files : \A t \in Tasks : One(f, t)!Init
  /\ [][\A f \in Files : \A t \in Tasks : UNCHANGED One(f, t)!vars \/ One(f, t)!Next]_vars
=============================================================================
