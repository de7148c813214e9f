------------------------------ MODULE OneFile ------------------------------
(* CheckpointLifecycle as one file of one subtask sees it: files do not interact in ownership and
   garbage, so this is all there is to show of them.

                       nobody --Create--> named --Deploy--> replaced      who made it
     Upload -> Snapshot -> SendAck -> RecvAck -> Complete                 how it comes to be held
                              staged, released -> tomb -> Delete          how it goes

   Of all leaders it keeps the current one; of those before, whether one may still delete the file.
   Of all attempts it keeps the one that the manifest names and, if that is another, the one that
   made the file. What depends on other files, subtasks or attempts may happen at any time here. So
   epochs, attempts, files, subtasks, commits and faults are not bounded: only the checkpoints are
   that are spoken of at once. `MaxCkpt` of them are enough to show a step that speaks of as many,
   because identifiers are only compared.

   That every step of CheckpointLifecycle is one of these, or none, is checked by
   MCOneFileRefinement. That `Inductive` is kept by every step from whatever state satisfies it, is
   checked by MCOneFile. Guards have the names that they have there.                              *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  MaxCkpt,
  HeldOpen   \* names of guards that let everything pass

Ckpts == 1..MaxCkpt
None  == 0

VARIABLES
  ids,       \* retained checkpoints
  held,      \* those that hold the file
  head,      \* what the running line was restored from, until a checkpoint completes
  once,      \* whether a checkpoint that held the file has ever completed
  released, tomb, object,
  stale,     \* whether a deposed leader knows it as a tombstone
  maker,     \* "nobody", "named": the named attempt; "replaced": one that was named
  goes,      \* whether a replaced maker goes on
  st,        \* the named attempt: "none", "restoring", "run", "dead"
  follows,   \* whether it follows the current leader
  has,       \* whether it has the file: "no", "live", "left" (it may return)
  lastSnap,
  snaps,     \* its snapshots for the current leader: "no", "without", "with" the file
  acks,      \* its acknowledgements on their way to the current leader, likewise
  uploaded,  \* as its maker knows it
  sent,      \* whether the maker named it in an acknowledgement
  pend,      \* the leader's pending checkpoints: "no", "waiting", "without", "with"
  staged,    \* the last acknowledgement that named it, while it is staged
  orphan,    \* whether it was staged by an attempt that was replaced
  lastAck

manifest == <<ids, held, head, once, released, tomb>>
making   == <<maker, goes, uploaded, sent>>
attempt  == <<st, follows, has, lastSnap, snaps>>
leader   == <<pend, staged, orphan, lastAck>>
vars     == <<manifest, object, stale, making, attempt, acks, leader>>

Guard(name, condition) == name \in HeldOpen \/ condition
Max(S) == IF S = {} THEN None ELSE CHOOSE x \in S : \A y \in S : y <= x

Newest == Max(ids)
RestorePoint == IF head # None THEN head ELSE Newest
Known  == held # {} \/ tomb
Spoken == { c \in Ckpts : snaps[c] # "no" \/ acks[c] # "no" \/ pend[c] # "no" }
Last   == Max(ids \cup Spoken \cup {lastSnap, lastAck, staged})
No     == [c \in Ckpts |-> "no"]
Made   == maker = "named"      \* by the named attempt

Init ==
  /\ ids = {} /\ held = {} /\ head = None /\ once = FALSE /\ released = FALSE /\ tomb = FALSE
  /\ object = FALSE /\ stale = FALSE
  /\ maker = "nobody" /\ goes = FALSE /\ uploaded = FALSE /\ sent = FALSE
  /\ st = "none" /\ follows = FALSE /\ has = "no" /\ lastSnap = None /\ snaps = No
  /\ acks = No /\ pend = No /\ staged = None /\ orphan = FALSE /\ lastAck = None

Named(p) == \E c \in Ckpts : p[c] = "with"
StagedDone(p) ==
  /\ lastAck # None
  /\ Guard("LaterAckWithoutIt", staged < lastAck)
  /\ Guard("NoOlderPendingWaits", \A c \in Ckpts : c < lastAck => p[c] # "waiting")

\* What a commit may condemn, with these released, held and pending. It may leave it to a later one.
Garbage(free, h, p) ==
  /\ ~tomb /\ h = {}
  /\ \/ free /\ (Made \/ ~Named(p))
     \/ staged # None /\ StagedDone(p) /\ Guard("NotNamedUnderWay", ~Named(p))
     \/ orphan /\ Guard("NotNamedUnderWay", ~Named(p))

(* ---------------- leadership ---------------- *)
\* Nobody answers what was said to the leader before.
Claim ==
  /\ stale' = (stale \/ tomb)
  /\ follows' = FALSE /\ snaps' = No /\ acks' = No
  /\ pend' = No /\ staged' = None /\ orphan' = FALSE /\ lastAck' = None
  /\ UNCHANGED <<manifest, object, making, st, has, lastSnap>>

\* It may be declared, under the last checkpoint that named it.
Attach ==
  /\ st = "run" /\ ~follows
  /\ follows' = TRUE
  /\ \/ staged' = staged
     \/ Made /\ sent /\ ~Known /\ \E c \in 1..lastSnap : (has # "no" => c > Newest) /\ staged' = c
  /\ UNCHANGED <<manifest, object, stale, making, st, has, lastSnap, snaps, acks, pend, orphan, lastAck>>

\* A new attempt restores a retained checkpoint; what the old one staged is an orphan, or the sweep's.
Deploy(c) ==
  /\ c \in {RestorePoint} \cup ids
  /\ head' = c
  /\ st' = "restoring" /\ follows' = TRUE /\ has' = IF c \in held THEN "live" ELSE "no"
  /\ lastSnap' \in {None, c} /\ snaps' = No /\ acks' = No
  /\ maker' = IF Made THEN "replaced" ELSE maker
  /\ goes' = IF Made THEN st = "run" ELSE goes
  /\ pend' = No /\ staged' = None /\ lastAck' = None
  /\ \/ Garbage(released, held, No) /\ tomb' = TRUE /\ released' = FALSE /\ orphan' = FALSE
     \/ orphan' \in {orphan, orphan \/ staged # None} /\ UNCHANGED <<tomb, released>>
  /\ UNCHANGED <<ids, held, once, object, stale, uploaded, sent>>

\* Other subtasks get new attempts.
DeployOthers ==
  /\ head' = RestorePoint /\ pend' = No
  /\ \/ Garbage(released, held, No) /\ tomb' = TRUE /\ released' = FALSE /\ staged' = None /\ orphan' = FALSE
     \/ UNCHANGED <<tomb, released, staged, orphan>>
  /\ UNCHANGED <<ids, held, once, object, stale, making, attempt, acks, lastAck>>

(* ---------------- the named attempt ---------------- *)
Restored ==
  /\ st = "restoring" /\ st' = "run"
  /\ UNCHANGED <<manifest, object, stale, making, follows, has, lastSnap, snaps, acks, leader>>

Crash ==
  /\ st \in {"run", "restoring"}
  /\ st' = "dead" /\ follows' = FALSE /\ has' = "no" /\ lastSnap' = None /\ snaps' = No
  /\ uploaded' = (uploaded /\ ~Made) /\ sent' = (sent /\ ~Made)
  /\ UNCHANGED <<manifest, object, stale, maker, goes, acks, leader>>

Create ==
  /\ st = "run" /\ maker = "nobody"
  /\ maker' = "named" /\ has' = "live"
  /\ UNCHANGED <<manifest, object, stale, goes, uploaded, sent, st, follows, lastSnap, snaps, acks, leader>>

\* Compacted, or presented again.
Change ==
  /\ st = "run" /\ has # "no"
  /\ has' = IF has = "live" THEN "left" ELSE "live"
  /\ UNCHANGED <<manifest, object, stale, making, st, follows, lastSnap, snaps, acks, leader>>

AfterSnapshot == IF has = "left" /\ ~Guard("MappingEndsWhenFileLeaves", FALSE) THEN "no" ELSE has

Snapshot(c) ==
  /\ st = "run" /\ follows
  /\ pend[c] = "waiting" /\ snaps[c] = "no" /\ acks[c] = "no"
  /\ Guard("TriggerIsNew", c > lastSnap)
  /\ snaps' = [snaps EXCEPT ![c] = IF has = "live" THEN "with" ELSE "without"]
  /\ lastSnap' = Max({lastSnap, c}) /\ has' = AfterSnapshot
  /\ UNCHANGED <<manifest, object, stale, making, st, follows, acks, leader>>

\* For a deposed leader: what becomes of it is nothing to the file, but that it is uploaded and named.
SnapshotElsewhere ==
  /\ st = "run" /\ ~follows
  /\ \E c \in Ckpts : c > lastSnap /\ lastSnap' = c
  /\ has' = AfterSnapshot
  /\ UNCHANGED <<manifest, object, stale, making, st, follows, snaps, acks, leader>>

Upload ==
  /\ \/ st = "run" /\ Made /\ (follows => \E c \in Ckpts : snaps[c] = "with")
     \/ goes
  /\ ~uploaded /\ uploaded' = TRUE /\ object' = TRUE
  /\ UNCHANGED <<manifest, stale, maker, goes, sent, attempt, acks, leader>>

SendAck(c) ==
  /\ st = "run" /\ snaps[c] # "no"
  /\ Guard("AckNeedsAllStored", snaps[c] = "with" /\ Made => uploaded)
  /\ acks' = [acks EXCEPT ![c] = snaps[c]] /\ snaps' = [snaps EXCEPT ![c] = "no"]
  /\ sent' = (sent \/ (snaps[c] = "with" /\ Made))
  /\ UNCHANGED <<manifest, object, stale, maker, goes, uploaded, st, follows, has, lastSnap, leader>>

SendElsewhere ==
  /\ goes \/ (st = "run" /\ Made /\ ~follows)
  /\ uploaded /\ sent' = TRUE
  /\ UNCHANGED <<manifest, object, stale, maker, goes, uploaded, attempt, acks, leader>>

DropSnap(c) ==
  /\ snaps[c] # "no" /\ pend[c] = "no"
  /\ snaps' = [snaps EXCEPT ![c] = "no"]
  /\ UNCHANGED <<manifest, object, stale, making, st, follows, has, lastSnap, acks, leader>>

TaskDelete ==
  /\ st = "run" /\ (Made => uploaded)
  /\ Guard("OnlyOwnAndNeverNamedIsDeleted", Made /\ ~sent)
  /\ has = "no" /\ \A c \in Ckpts : snaps[c] # "with"
  /\ object' = FALSE /\ uploaded' = (uploaded /\ ~Made)
  /\ UNCHANGED <<manifest, stale, maker, goes, sent, attempt, acks, leader>>

(* ---------------- a replaced maker ---------------- *)
CreateReplaced ==
  /\ maker = "nobody" /\ maker' = "replaced" /\ goes' = TRUE
  /\ UNCHANGED <<manifest, object, stale, uploaded, sent, attempt, acks, leader>>

CrashReplaced ==
  /\ goes /\ goes' = FALSE /\ uploaded' = FALSE /\ sent' = FALSE
  /\ UNCHANGED <<manifest, object, stale, maker, attempt, acks, leader>>

DeleteReplaced ==
  /\ goes /\ uploaded /\ Guard("OnlyOwnAndNeverNamedIsDeleted", ~sent)
  /\ object' = FALSE /\ uploaded' = FALSE
  /\ UNCHANGED <<manifest, stale, maker, goes, sent, attempt, acks, leader>>

\* It follows the leader and is counted: only if nothing keeps that apart.
CountReplaced(c) ==
  /\ Guard("AttemptIsNamed", FALSE)
  /\ goes /\ uploaded /\ sent' = TRUE
  /\ pend[c] = "waiting" /\ pend' = [pend EXCEPT ![c] = "with"]
  /\ UNCHANGED <<manifest, object, stale, maker, goes, uploaded, attempt, acks, staged, orphan, lastAck>>

(* ---------------- the leader ---------------- *)
Trigger(c) ==
  /\ c > Last /\ pend' = [pend EXCEPT ![c] = "waiting"]
  /\ UNCHANGED <<manifest, object, stale, making, attempt, acks, staged, orphan, lastAck>>

\* Whether it contradicts the manifest, other files decide. A name that completed once is staged
\* again only by a full list.
RecvAck(c) ==
  /\ acks[c] # "no" /\ acks' = [acks EXCEPT ![c] = "no"]
  /\ \E v \in IF pend[c] = "waiting" THEN {acks[c], "no"} ELSE {pend[c]} : pend' = [pend EXCEPT ![c] = v]
  /\ lastAck' = Max({lastAck, c})
  /\ LET fresh == acks[c] = "with" /\ Made /\ ~Known /\ ~released IN
     \/ (fresh => once) /\ staged' = staged
     \/ fresh /\ staged' = Max({staged, c})
  /\ UNCHANGED <<manifest, object, stale, making, attempt, orphan>>

LoseAck(c) ==
  /\ st # "run" /\ acks[c] # "no" /\ acks' = [acks EXCEPT ![c] = "no"]
  /\ UNCHANGED <<manifest, object, stale, making, attempt, leader>>

\* Aborted or expired.
Abort(c) ==
  /\ pend[c] # "no" /\ pend' = [pend EXCEPT ![c] = "no"]
  /\ UNCHANGED <<manifest, object, stale, making, attempt, acks, staged, orphan, lastAck>>

\* Which others are kept is for retention, pins and other heads to say.
Complete(c) ==
  /\ pend[c] # "no" /\ Guard("AllAcknowledged", pend[c] # "waiting")
  /\ \E keep \in SUBSET ids :
       LET with == pend[c] = "with"
           h == (held \cap keep) \cup IF with THEN {c} ELSE {}
           free == (released \/ held # {}) /\ h = {}
           p == [d \in Ckpts |-> IF d = c \/ ~Guard("CommitsInOrder", d > c) THEN "no" ELSE pend[d]]
       IN \E g \in BOOLEAN :
       /\ g => Garbage(free, h, p)
       /\ ids' = keep \cup {c} /\ held' = h /\ head' = None /\ once' = (once \/ with)
       /\ tomb' = (tomb \/ g) /\ released' = (free /\ ~g)
       /\ pend' = p /\ staged' = (IF g \/ (with /\ Newest \notin held) THEN None ELSE staged)
       /\ orphan' = (orphan /\ ~g)
  /\ UNCHANGED <<object, stale, making, attempt, acks, lastAck>>

Collect ==
  /\ Garbage(released, held, pend)
  /\ tomb' = TRUE /\ released' = FALSE /\ staged' = None /\ orphan' = FALSE
  /\ UNCHANGED <<ids, held, head, once, object, stale, making, attempt, acks, pend, lastAck>>

Sweep ==
  /\ object /\ ~Known /\ ~released /\ ~Named(pend)
  /\ Guard("SweepsOnlyUnnamed", maker = "replaced")
  /\ tomb' = TRUE /\ staged' = None /\ orphan' = FALSE
  /\ UNCHANGED <<ids, held, head, once, released, object, stale, making, attempt, acks, pend, lastAck>>

Delete ==
  /\ object /\ Guard("DeletesOnlyTombstones", tomb \/ stale) /\ object' = FALSE
  /\ UNCHANGED <<manifest, stale, making, attempt, acks, leader>>

Forget ==
  /\ tomb /\ ~object /\ tomb' = FALSE
  /\ UNCHANGED <<ids, held, head, once, released, object, stale, making, attempt, acks, leader>>

\* The deposed leaders that know the tombstone learn that they are deposed.
Depose ==
  /\ stale /\ stale' = FALSE
  /\ UNCHANGED <<manifest, object, making, attempt, acks, leader>>

Next ==
  \/ Claim \/ Attach \/ DeployOthers \/ Restored \/ Crash \/ Create \/ Change \/ SnapshotElsewhere
  \/ Upload \/ SendElsewhere \/ TaskDelete \/ CreateReplaced \/ CrashReplaced \/ DeleteReplaced
  \/ Collect \/ Sweep \/ Delete \/ Forget \/ Depose
  \/ \E c \in {None} \cup Ckpts : Deploy(c)
  \/ \E c \in Ckpts : \/ Snapshot(c) \/ SendAck(c) \/ DropSnap(c) \/ CountReplaced(c)
                      \/ Trigger(c) \/ RecvAck(c) \/ LoseAck(c) \/ Abort(c) \/ Complete(c)

Spec == Init /\ [][Next]_vars

(* ---------------- what must always hold ---------------- *)
Stored == Made => uploaded     \* as far as the named attempt knows

RetainedIsRecoverable == held # {} => object
TombstoneIsNeverReferredTo == tomb \/ stale => held = {}
RestoreIsSafe == st = "restoring" /\ follows /\ has # "no" => object
ReuseIsSafe == st = "run" /\ follows /\ has # "no" /\ Stored => object /\ ~tomb
SnapshotIsSafe == st = "run" /\ Stored /\ (\E c \in Ckpts : snaps[c] = "with" /\ pend[c] # "no") => object /\ ~tomb
AckImpliesDurable == Named(pend) => object /\ ~tomb
OnlyTheOwnerDeletes == [][object /\ ~object' => tomb \/ stale \/ (uploaded /\ ~sent)]_vars

(* ---------------- why it does: kept by every step from any state that satisfies it ---------------- *)
\* What is known of the file in a checkpoint that the named attempt took.
Record(c) == IF snaps[c] # "no" THEN snaps[c] ELSE IF acks[c] # "no" THEN acks[c]
             ELSE IF pend[c] \in {"with", "without"} THEN pend[c] ELSE "no"
\* In one that is pending: it may come to complete with the file.
Coming == \E c \in Ckpts : pend[c] # "no" /\ Record(c) = "with"
Wanted == has # "no" \/ Coming

\* The variables in the order in which TLC chooses them, each with what narrows the choice.
ManifestInv ==
  /\ ids \in SUBSET Ckpts /\ held \in SUBSET ids
  /\ head \in {None} \cup ids
  /\ once \in BOOLEAN /\ (held # {} => once) /\ (once => ids # {})
  /\ released \in BOOLEAN /\ (released => once /\ held = {})
  /\ tomb \in BOOLEAN /\ (tomb => held = {} /\ ~released)
  /\ object \in BOOLEAN /\ (held # {} => object)
  /\ stale \in BOOLEAN /\ (stale => held = {} /\ ~released)

AttemptInv ==
  /\ maker \in {"nobody", "named", "replaced"}
  /\ maker = "nobody" => ~once /\ ~tomb /\ ~object /\ ~stale
  /\ Made /\ once => head \in {None, Newest}
  /\ goes \in BOOLEAN /\ (goes => maker = "replaced")
  /\ st \in {"none", "restoring", "run", "dead"}
  /\ Made => st \in {"run", "dead"}
  /\ follows \in BOOLEAN /\ (st \in {"none", "dead"} => ~follows)
  /\ uploaded \in BOOLEAN /\ (uploaded => goes \/ (Made /\ st = "run"))
  /\ sent \in BOOLEAN /\ (sent => uploaded)
  /\ once /\ (goes \/ (Made /\ st = "run")) => sent
  /\ has \in {"no", "live", "left"}
  /\ has # "no" => st \in {"restoring", "run"} /\ maker # "nobody"
  /\ st = "restoring" => has # "left"
  /\ lastSnap \in {None} \cup Ckpts
  /\ st \in {"none", "dead"} => lastSnap = None
  /\ st = "restoring" => lastSnap <= Newest
  \* What it took over is in what it was restored from; what it made, in what completed since.
  /\ has # "no" /\ ~Made => RestorePoint \in held
  /\ has # "no" /\ Made => /\ ~tomb /\ ~stale /\ ~released
                           /\ once => Newest \in held
                           /\ uploaded => object

\* Whether the leader may have heard of the named attempt since it leads and names it.
Heard == st = "dead" \/ (st = "run" /\ follows)

\* Snapshots, acknowledgements and pending checkpoints: each checkpoint is at one place at a time.
UnderWayInv ==
  /\ pend \in [Ckpts -> {"no", "waiting", "without", "with"}]
  /\ \A c \in Ckpts : pend[c] # "no" => c > Newest
  /\ snaps \in IF st = "run" /\ follows THEN [Ckpts -> {"no", "without", "with"}] ELSE {No}
  /\ \A c \in Ckpts : snaps[c] # "no" => /\ c <= lastSnap /\ c \notin ids
                                         /\ pend[c] \in {"no", "waiting"}
  /\ acks \in IF Heard THEN [Ckpts -> {"no", "without", "with"}] ELSE {No}
  /\ \A c \in Ckpts : acks[c] # "no" => /\ snaps[c] = "no" /\ c \notin ids
                                        /\ pend[c] \in {"no", "waiting"}
                                        /\ st = "run" => c <= lastSnap
  /\ lastAck \in IF Heard THEN {None} \cup Ckpts ELSE {None}
  /\ st = "run" => lastAck <= lastSnap
  /\ lastAck # None => snaps[lastAck] = "no" /\ acks[lastAck] = "no"
  /\ \A c \in Ckpts : pend[c] \in {"with", "without"} => c <= lastAck
  /\ staged \in {None} \cup Ckpts
  /\ staged # None => Made /\ held = {} /\ ~tomb
  /\ st = "run" /\ ~follows => staged = None
  /\ st = "run" => staged <= lastSnap
  /\ st = "run" /\ staged # None => sent
  /\ orphan \in BOOLEAN /\ (orphan => maker = "replaced" /\ held = {} /\ ~tomb)

\* An attempt has a file for one stretch of its life: no snapshot without it lies between two with it.
StretchInv ==
  /\ maker = "nobody" => \A c \in Ckpts : Record(c) # "with"
  \* From its restore to some time.
  /\ ~Made => /\ has # "no" => \A c \in Ckpts : Record(c) # "without"
              /\ \A c, d \in Ckpts : c < d /\ Record(d) = "with" => Record(c) # "without"
              /\ Coming => RestorePoint \in held
  \* From some time to some time.
  /\ Made =>
       LET told(c) == IF c \in held \/ c = staged THEN "with" ELSE IF c \in ids THEN "without" ELSE Record(c)
           with == { c \in Ckpts : told(c) = "with" }
           without == { c \in Ckpts : Record(c) = "without" \/ (c = Newest /\ c \notin held)
                                      \/ (c = lastAck /\ staged < c /\ ~once) }
       IN
       /\ \A c \in with, d \in without : c < d => has = "no" /\ \A e \in with : e < d
       /\ tomb /\ ~once => \A c \in Ckpts : Record(c) = "with" => c < lastAck
       /\ once /\ Newest \notin held => has = "no" /\ \A c \in Ckpts : Record(c) = "with" => c < Newest
       /\ \A c \in Ckpts : st = "run" /\ (acks[c] = "with" \/ pend[c] = "with") => sent
       /\ Coming => /\ ~tomb /\ ~stale /\ ~released
                    /\ uploaded => object
                    /\ \A c \in Ckpts : pend[c] # "no" /\ (acks[c] = "with" \/ pend[c] = "with") => object

Inductive == ManifestInv /\ AttemptInv /\ UnderWayInv /\ StretchInv
=============================================================================
