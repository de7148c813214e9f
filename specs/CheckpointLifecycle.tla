------------------------ MODULE CheckpointLifecycle ------------------------
(* Who may refer to a checkpoint file, who may delete it, and when.

   One job, several coordinator epochs (deposed ones go on), several attempts of each subtask
   (replaced ones go on), a manifest that changes only by a compare-and-swap, and a store whose
   objects are created once and never overwritten.

     Deploy -> Restored -> Flush, Compact, Return
                              |
     Trigger -> Snapshot -> Upload -> SendAck -> RecvAck -> Complete -> Delete -> Forget
                    |          |                               |
                 DropSnap   TaskDelete                Collect, Sweep: tombstones

   A commit of the manifest is one step here, allowed only to the epoch that it shows: that is
   what `AtomicCommit` offers, and `LeaderFencing` shows how it comes about. Whatever a commit is
   made for, it condemns what is garbage by then.

   `Guard(name, condition)` is the `guard!` of the Rust code, with the same names: a name in
   `HeldOpen` lets everything pass, which plants the fault that the guard exists to prevent.

   `cuts` is a history: what each completed checkpoint was when it completed. The manifest itself
   knows intervals alone. README.md says what is left out.                                      *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Tasks, MaxEpoch, MaxCkpt, MaxFile, MaxAttempt,
  Retain,         \* num_retained
  MaxConcurrent,  \* checkpoints under way
  MaxPins,        \* pins at a time
  GoBack,         \* whether an older checkpoint may be restored
  ForgetBases,    \* whether an attempt may forget what a checkpoint held
  MaxFaults,      \* crashes, replacements, takeovers, aborts; 0: no limit, and none is counted
  HeldOpen        \* names of guards that let everything pass

Files    == 1..MaxFile
Attempts == 1..MaxAttempt
Epochs   == 1..MaxEpoch
Ckpts    == 1..MaxCkpt
None     == 0
Open     == MaxCkpt + 1     \* the end of an interval that has none

VARIABLES
  m,        \* manifest: [epoch, ids, parent, intervals, head, pins, att, released, tomb]
  cuts,     \* Ckpts -> [Tasks -> SUBSET Files]: what completed
  objects,  \* files in the store
  creator,  \* Files -> the attempt that made it
  ld,       \* Epochs -> what that leader knows
  at,       \* Attempts -> what that attempt knows
  acks,     \* acknowledgements under way
  nextF, nextA, nextC,
  faults

vars == <<m, cuts, objects, creator, ld, at, acks, nextF, nextA, nextC, faults>>

Guard(name, condition) == name \in HeldOpen \/ condition
Fault == IF MaxFaults = 0 THEN faults' = faults ELSE faults < MaxFaults /\ faults' = faults + 1
Max(S) == IF S = {} THEN None ELSE CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y

(* ---------------- the registry: a checkpoint is a point, a file is an interval ---------------- *)
NoFiles     == [t \in Tasks |-> {}]
Holds(i, c) == i.born <= c /\ c < i.dropped
FilesOf(mm, c, t) == { i.file : i \in { j \in mm.intervals : j.task = t /\ Holds(j, c) } }
Refs(mm)    == { i.file : i \in { j \in mm.intervals : \E c \in mm.ids : Holds(j, c) } }
Newest(mm)  == Max(mm.ids)
RestorePoint(mm) == IF mm.head # None THEN mm.head ELSE Newest(mm)
\* An interval that has ended ends with the first retained checkpoint that it does not hold.
Tidied(i, ids) ==
  IF i.dropped = Open THEN i
  ELSE LET last == Max({ c \in ids : Holds(i, c) }) IN [i EXCEPT !.dropped = Min({ c \in ids : c > last })]
\* The nearest of a checkpoint, its parent and so on that is among these.
RECURSIVE Nearest(_, _, _)
Nearest(mm, c, ids) == IF c = None \/ c \in ids THEN c ELSE Nearest(mm, mm.parent[c], ids)
\* The newest completed checkpoint, if the running line continues it.
Base(mm)    == IF mm.head \in {None, Newest(mm)} THEN Newest(mm) ELSE None
\* The first n of a checkpoint, its parent and so on.
RECURSIVE Lineage(_, _, _)
Lineage(mm, c, n) == IF c = None \/ n = 0 THEN {} ELSE {c} \cup Lineage(mm, mm.parent[c], n - 1)

(* ---------------- leadership ---------------- *)
NoManifest == [epoch |-> 0, ids |-> {}, parent |-> [c \in Ckpts |-> None], intervals |-> {}, head |-> None,
               pins |-> {}, att |-> [t \in Tasks |-> None], released |-> {}, tomb |-> {}]
NoLeader  == [up |-> FALSE,
              sees |-> NoManifest,                 \* once it is superseded: the manifest as it last was its own
              att |-> [t \in Tasks |-> None],      \* attempts that follow this leader
              pend |-> {}, staged |-> [f \in Files |-> None],    \* the last acknowledgement that named it
              orphans |-> {},                      \* staged by attempts that were replaced
              lastAck |-> [t \in Tasks |-> None], lastDeclared |-> [t \in Tasks |-> None]]
NoAttempt == [st |-> "none", task |-> CHOOSE t \in Tasks : TRUE, epoch |-> None, live |-> {}, left |-> {},
              remote |-> {}, snaps |-> {}, sent |-> {}, declared |-> [f \in Files |-> None],
              lastSnap |-> None, done |-> None, knows |-> {}, restored |-> {}]

Init ==
  /\ m = NoManifest
  /\ cuts = [c \in Ckpts |-> NoFiles]
  /\ objects = {} /\ creator = [f \in Files |-> None]
  /\ ld = [e \in Epochs |-> NoLeader] /\ at = [a \in Attempts |-> NoAttempt]
  /\ acks = {} /\ nextF = 1 /\ nextA = 1 /\ nextC = 1 /\ faults = 0

Claim ==
  /\ m.epoch < MaxEpoch
  /\ IF m.epoch = 0 THEN UNCHANGED faults ELSE Fault
  /\ m' = [m EXCEPT !.epoch = @ + 1]
  /\ ld' = [e \in Epochs |-> IF e = m.epoch + 1 THEN [NoLeader EXCEPT !.up = TRUE]
                            ELSE IF e = m.epoch /\ ld[e].up THEN [ld[e] EXCEPT !.sees = [m EXCEPT !.pins = {}]]
                            ELSE ld[e]]
  /\ UNCHANGED <<cuts, objects, creator, at, acks, nextF, nextA, nextC>>

\* The manifest that a leader decides by: the newest that it committed itself.
Sees(e) == IF m.epoch = e THEN m ELSE ld[e].sees

\* A superseded leader learns it, by a commit that is refused or by a look at CURRENT.
Depose(e) ==
  /\ ld[e].up /\ m.epoch # e
  /\ ld' = [ld EXCEPT ![e] = NoLeader]
  /\ UNCHANGED <<m, cuts, objects, creator, at, acks, nextF, nextA, nextC, faults>>

Known(mm, f) == f \in Refs(mm) \/ f \in mm.tomb

\* An attempt remembers a file that it may name again or has to delete, and a base that a trigger may
\* yet name: none below the newest that it knows to be complete, but for snapshots under way.
Kept(a, x) == [x EXCEPT
  !.remote = { f \in @ : f \in x.live \cup x.left \cup UNION { s.files : s \in x.snaps }
                         \/ (creator[f] = a /\ f \notin x.sent) },
  !.knows = LET newest == Max({ c \in @ : c <= x.done })
            IN { c \in @ : c >= newest \/ \E s \in x.snaps : s.base = c }]
Dead(a) == at[a].st \in {"dead", "gone"}

(* A running attempt follows a newer leader instead of restarting. Snapshots under way are given
   up; the names that the new leader may not know are declared. *)
Attach(a, e) ==
  LET t == at[a].task
      newest == RestorePoint(Sees(e))
  IN
  /\ at[a].st = "run" /\ at[a].epoch < e /\ ld[e].up
  /\ ld[e].att[t] = None
  /\ Guard("AttemptIsNamed", Sees(e).att[t] = a)
  /\ at' = [at EXCEPT ![a] = Kept(a, [@ EXCEPT !.epoch = e, !.snaps = {},
                                             !.done = IF newest <= at[a].lastSnap THEN Max({@, newest}) ELSE @])]
  /\ ld' = [ld EXCEPT
       ![e].att[t] = a,
       ![e].staged = [f \in Files |-> IF at[a].declared[f] # None /\ ~Known(Sees(e), f)
                                      THEN at[a].declared[f] ELSE @[f]],
       ![e].lastDeclared[t] = Max({ at[a].declared[f] : f \in Files })]
  /\ UNCHANGED <<m, cuts, objects, creator, acks, nextF, nextA, nextC, faults>>

Named(pend, f) == \E p \in pend : \E t \in Tasks : f \in p.got[t].added

\* What a live attempt staged is over once a later snapshot of it was acknowledged without it, and
\* no older pending checkpoint still waits for its subtask.
StagedDone(L, f, pend) ==
  LET t == at[creator[f]].task IN
  /\ L.lastAck[t] # None
  /\ Guard("LaterAckWithoutIt", L.staged[f] < L.lastAck[t])
  /\ Guard("NoOlderPendingWaits", \A p \in pend : p.id < L.lastAck[t] => p.got[t].ok)

\* What the next commit condemns: mm is the manifest without its new tombstones.
Garbage(L, mm, pend) ==
  { f \in Files :
      /\ f \notin mm.tomb /\ f \notin Refs(mm)
      /\ \/ /\ f \in mm.released
            /\ \A p \in pend : \A t \in Tasks : f \notin p.got[t].returned
         \/ /\ L.staged[f] # None /\ StagedDone(L, f, pend)
            /\ Guard("NotNamedUnderWay", ~Named(pend, f))
         \/ /\ f \in L.orphans
            /\ Guard("NotNamedUnderWay", ~Named(pend, f)) }

Condemn(mm, g) == [mm EXCEPT !.tomb = @ \cup g, !.released = @ \ g]
\* A leader thinks no more about what is condemned or in an interval.
Unstaged(L, g) == [L EXCEPT !.staged = [f \in Files |-> IF f \in g THEN None ELSE @[f]], !.orphans = @ \ g]

(* New attempts of some subtasks, named in the manifest before they may upload. They restore the
   restore point; all of them together may go back to an older checkpoint of the line, which begins
   a new line. Every pending checkpoint is aborted. *)
Deploy(e, S, c) ==
  /\ ld[e].up /\ m.epoch = e /\ S # {} /\ nextA + Cardinality(S) - 1 <= MaxAttempt
  /\ \/ c = RestorePoint(m)
     \/ GoBack /\ S = Tasks /\ c \in m.ids \cap Lineage(m, RestorePoint(m), MaxCkpt)
  /\ LET new == CHOOSE n \in [S -> nextA..(nextA + Cardinality(S) - 1)] : \A t, u \in S : t # u => n[t] # n[u]
         att == [t \in Tasks |-> IF t \in S THEN new[t] ELSE m.att[t]]
         gone == { f \in Files : creator[f] \in { m.att[t] : t \in S } /\ ld[e].staged[f] # None }
         g == Garbage(ld[e], m, {})
         files(t) == IF c = None THEN {} ELSE FilesOf(m, c, t)
     IN
     /\ m' = Condemn([m EXCEPT !.att = att, !.head = c], g)
     /\ at' = [a \in Attempts |->
          IF \E t \in S : new[t] = a
          THEN LET t == CHOOSE u \in S : new[u] = a IN
               [NoAttempt EXCEPT !.st = "restoring", !.task = t, !.epoch = e, !.restored = files(t),
                                 !.knows = IF c = None THEN {} ELSE {c}, !.done = c, !.lastSnap = c]
          ELSE at[a]]
     /\ ld' = [ld EXCEPT
          ![e] = [Unstaged(@, g \cup gone) EXCEPT !.orphans = (@ \cup gone) \ g],
          ![e].pend = {},
          ![e].att = [t \in Tasks |-> IF t \in S THEN new[t] ELSE @[t]],
          ![e].lastAck = [t \in Tasks |-> IF t \in S THEN None ELSE @[t]],
          ![e].lastDeclared = [t \in Tasks |-> IF t \in S THEN None ELSE @[t]]]
  /\ nextA' = nextA + Cardinality(S)
  /\ IF \A t \in S : m.att[t] = None \/ Dead(m.att[t]) THEN UNCHANGED faults ELSE Fault
  /\ UNCHANGED <<cuts, objects, creator, acks, nextF, nextC>>

(* ---------------- an attempt ---------------- *)
Restored(a) ==
  /\ at[a].st = "restoring"
  /\ at' = [at EXCEPT ![a].st = "run", ![a].live = at[a].restored, ![a].remote = at[a].restored]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, acks, nextF, nextA, nextC, faults>>

Crash(a) ==
  /\ at[a].st \in {"run", "restoring"} /\ Fault
  \* One that died before it ran never comes to run, as far as its leader knows.
  /\ at' = [at EXCEPT ![a] = [NoAttempt EXCEPT !.st = IF at[a].st = "run" THEN "dead" ELSE "gone", !.task = at[a].task]]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, acks, nextF, nextA, nextC>>

(* The state changes: a file comes, and what it was compacted from leaves. *)
Change(a, S) ==
  /\ at[a].st = "run" /\ nextF <= MaxFile
  /\ at' = [at EXCEPT ![a].live = (@ \ S) \cup {nextF}, ![a].left = @ \cup S]
  /\ creator' = [creator EXCEPT ![nextF] = a] /\ nextF' = nextF + 1
  /\ UNCHANGED <<m, cuts, objects, ld, acks, nextA, nextC, faults>>
Flush(a)   == at[a].st = "run" /\ Change(a, {})
Compact(a) == at[a].st = "run" /\ \E S \in SUBSET at[a].live : S # {} /\ Change(a, S)

(* A backend presents a file again that had left. Until a snapshot is taken without it, it is the
   same file; after that its name is not used again. *)
Return(a) ==
  /\ at[a].st = "run"
  /\ \E f \in at[a].left : at' = [at EXCEPT ![a].live = @ \cup {f}, ![a].left = @ \ {f}]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, acks, nextF, nextA, nextC, faults>>

Unanswered(a, c) == \E k \in acks : k.att = a /\ k.id = c /\ k.epoch = at[a].epoch

(* A trigger comes as long as its checkpoint is pending. It says what the leader has settled. *)
Snapshot(a) ==
  /\ at[a].st = "run" /\ ld[at[a].epoch].att[at[a].task] = a
  /\ \E p \in ld[at[a].epoch].pend :
       LET settled == p.settled[at[a].task] IN
       /\ Guard("TriggerIsNew", p.id > at[a].lastSnap)
       /\ ~p.got[at[a].task].ok /\ ~Unanswered(a, p.id) /\ \A s \in at[a].snaps : s.id # p.id
       /\ at' = [at EXCEPT ![a] = Kept(a, [@ EXCEPT
            !.snaps = @ \cup {[id |-> p.id, base |-> p.base, files |-> at[a].live]},
            !.lastSnap = Max({@, p.id}), !.done = Max({@, p.base}),
            !.left = IF Guard("MappingEndsWhenFileLeaves", FALSE) THEN @ ELSE {},
            !.declared = [f \in Files |->
               IF Guard("DeclaredUntilSettled", @[f] <= settled /\ ~Unanswered(a, @[f])) THEN None ELSE @[f]]])]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, acks, nextF, nextA, nextC, faults>>

Upload(a) ==
  /\ at[a].st = "run"
  /\ \E s \in at[a].snaps : \E f \in s.files \ at[a].remote :
       /\ objects' = objects \cup {f}
       /\ at' = [at EXCEPT ![a].remote = @ \cup {f}]
  /\ UNCHANGED <<m, cuts, creator, ld, acks, nextF, nextA, nextC, faults>>

(* Files are told against the base that the trigger named, if its files are known exactly; else all
   of them are. *)
SendAck(a) ==
  /\ at[a].st = "run"
  /\ \E s \in at[a].snaps :
       LET t == at[a].task
           known == s.base # None /\ Guard("BaseIsKnown", s.base \in at[a].knows)
           held == IF s.base \in at[a].knows THEN cuts[s.base][t] ELSE {}
           added == IF known THEN s.files \ held ELSE s.files
           own == { f \in added : creator[f] = a }
       IN
       /\ Guard("AckNeedsAllStored", s.files \subseteq at[a].remote)
       /\ acks' = acks \cup {[epoch |-> at[a].epoch, id |-> s.id, task |-> t, att |-> a, cut |-> s.files,
                              base |-> IF known THEN s.base ELSE None, added |-> added,
                              removed |-> IF known THEN held \ s.files ELSE {}]}
       /\ at' = [at EXCEPT ![a] = Kept(a, [@ EXCEPT
            !.snaps = @ \ {s}, !.sent = @ \cup own, !.knows = @ \cup {s.id},
            !.declared = [f \in Files |-> IF f \in own THEN Max({@[f], s.id}) ELSE @[f]]])]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, nextF, nextA, nextC, faults>>

(* An attempt hears that the newest checkpoint is complete, and forgets older bases: also one that a
   trigger names which is still on its way. *)
ForgetBase(a) ==
  LET e == at[a].epoch
      c == Newest(Sees(e))
  IN
  /\ ForgetBases /\ at[a].st = "run" /\ ld[e].up /\ ld[e].att[at[a].task] = a
  /\ c > at[a].done /\ c <= at[a].lastSnap
  /\ at' = [at EXCEPT ![a] = Kept(a, [@ EXCEPT !.done = c])]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, acks, nextF, nextA, nextC, faults>>

(* The attempt hears that a checkpoint was aborted, and gives its snapshot up. *)
DropSnap(a) ==
  /\ at[a].st = "run" /\ ld[at[a].epoch].up
  /\ \E s \in at[a].snaps :
       /\ ~ \E p \in ld[at[a].epoch].pend : p.id = s.id
       /\ at' = [at EXCEPT ![a] = Kept(a, [@ EXCEPT !.snaps = @ \ {s}])]
  /\ UNCHANGED <<m, cuts, objects, creator, ld, acks, nextF, nextA, nextC, faults>>

(* Uploaded, wanted by nothing: the attempt's own to delete, if no acknowledgement named it. *)
TaskDelete(a) ==
  /\ at[a].st = "run"
  /\ \E f \in at[a].remote :
       /\ Guard("OnlyOwnAndNeverNamedIsDeleted", creator[f] = a /\ f \notin at[a].sent)
       /\ f \notin at[a].live \cup at[a].left /\ \A s \in at[a].snaps : f \notin s.files
       /\ objects' = objects \ {f}
       /\ at' = [at EXCEPT ![a].remote = @ \ {f}]
  /\ UNCHANGED <<m, cuts, creator, ld, acks, nextF, nextA, nextC, faults>>

(* ---------------- the coordinator ---------------- *)
\* Whatever was last named up to this acknowledgement is accounted for.
Settled(L, t) ==
  LET lasts == { L.staged[f] : f \in { g \in Files : L.staged[g] # None /\ at[creator[g]].task = t } }
      sent == Max({L.lastAck[t], L.lastDeclared[t]})
  IN IF lasts = {} THEN sent ELSE Min({Min(lasts) - 1, sent})

NotYet == [ok |-> FALSE, cut |-> {}, added |-> {}, removed |-> {}, returned |-> {}]

Trigger(e) ==
  /\ ld[e].up /\ nextC <= MaxCkpt
  /\ Guard("AllSubtasksRun", \A t \in Tasks : ld[e].att[t] # None /\ at[ld[e].att[t]].st \in {"run", "dead"})
  /\ Guard("MaxConcurrent", Cardinality(ld[e].pend) < MaxConcurrent)
  /\ ld' = [ld EXCEPT ![e].pend = @ \cup {[id |-> nextC, base |-> Base(Sees(e)), got |-> [t \in Tasks |-> NotYet],
                                           settled |-> [t \in Tasks |-> Settled(ld[e], t)]]}]
  /\ nextC' = nextC + 1       \* ids are reserved durably, in blocks
  /\ UNCHANGED <<m, cuts, objects, creator, at, acks, nextF, nextA, faults>>

\* An acknowledgement told against the newest completed checkpoint.
Rebased(added, removed, since, gone) ==
  IF "DeltaIsRebased" \in HeldOpen THEN [added |-> added, removed |-> removed]
  ELSE [added |-> added \ since, removed |-> (removed \ gone) \cup (since \ added)]
Express(mm, k) ==
  LET n == Newest(mm)
      now == IF n = None THEN {} ELSE FilesOf(mm, n, k.task)
      delta == IF k.base = None THEN [added |-> k.added \ now, removed |-> now \ k.added]
               ELSE Rebased(k.added, k.removed, cuts[n][k.task] \ cuts[k.base][k.task],
                            cuts[k.base][k.task] \ cuts[n][k.task])
  IN [ok |-> TRUE, cut |-> k.cut, added |-> delta.added, removed |-> delta.removed,
      returned |-> { f \in delta.added : creator[f] # k.att }]
\* It contradicts the manifest: it drops what is not held, brings what is, or names a tombstone.
Contradicts(mm, k) ==
  LET n == Newest(mm)
      now == IF n = None THEN {} ELSE FilesOf(mm, n, k.task)
      x == Express(mm, k)
  IN \/ ~ (x.removed \subseteq now)
     \/ x.added \cap now # {}
     \/ k.added \cap mm.tomb # {}

(* Every name in an acknowledgement of a named attempt is the leader's from here on, whatever
   becomes of its checkpoint. *)
RecvAck(e) ==
  /\ ld[e].up
  /\ \E k \in acks :
       LET L == ld[e]
           mm == Sees(e)
           fresh == { f \in k.added : creator[f] = k.att /\ ~Known(mm, f) /\ f \notin mm.released }
           staged == [f \in Files |-> IF f \in fresh THEN Max({L.staged[f], k.id}) ELSE L.staged[f]]
           mine == { p \in L.pend : p.id = k.id /\ L.att[k.task] = k.att /\ ~p.got[k.task].ok }
       IN
       /\ Guard("EpochIsCurrent", k.epoch = e)
       /\ Guard("AttemptIsNamed", mm.att[k.task] = k.att)
       /\ ld' = [ld EXCEPT
            ![e].pend = (@ \ mine) \cup
              IF mine = {} \/ Contradicts(mm, k) THEN {}
              ELSE { [p EXCEPT !.got[k.task] = Express(mm, k)] : p \in mine },
            ![e].staged = staged, ![e].lastAck[k.task] = Max({@, k.id})]
       /\ acks' = acks \ {k}
  /\ UNCHANGED <<m, cuts, objects, creator, at, nextF, nextA, nextC, faults>>

(* An acknowledgement is repeated until it is answered; so it is lost only with its attempt, or when
   that follows another leader. *)
LoseAck ==
  /\ \E k \in acks : (at[k.att].st # "run" \/ at[k.att].epoch # k.epoch) /\ acks' = acks \ {k}
  /\ UNCHANGED <<m, cuts, objects, creator, ld, at, nextF, nextA, nextC, faults>>

\* With its last acknowledgement a checkpoint waits for its commit; the oldest comes first.
IsReady(p) == \A t \in Tasks : p.got[t].ok
IsFirst(p, pend) == \A q \in pend : IsReady(q) => p.id <= q.id
NoneIsReady(pend) == \A p \in pend : ~IsReady(p)

(* Declined or cancelled; or its commit failed for certain. *)
Abort(e) ==
  /\ ld[e].up /\ Fault
  /\ \E p \in ld[e].pend : /\ IsReady(p) => IsFirst(p, ld[e].pend)
                          /\ ld' = [ld EXCEPT ![e].pend = @ \ {p}]
  /\ UNCHANGED <<m, cuts, objects, creator, at, acks, nextF, nextA, nextC>>

(* Its timeout ends a checkpoint that can't complete any more: a subtask died, follows another leader,
   or took a later one before. (One that could have completed is Abort's.) *)
Hopeless(e, p) ==
  \E t \in Tasks :
    LET a == ld[e].att[t] IN
    /\ ~p.got[t].ok
    /\ \/ Dead(a)
       \/ /\ ~ \E k \in acks : k.att = a /\ k.id = p.id /\ k.epoch = e
          /\ \/ at[a].epoch # e
             \/ at[a].lastSnap >= p.id /\ \A s \in at[a].snaps : s.id # p.id
Expire(e) ==
  /\ ld[e].up
  /\ \E p \in ld[e].pend : Hopeless(e, p) /\ ld' = [ld EXCEPT ![e].pend = @ \ {p}]
  /\ UNCHANGED <<m, cuts, objects, creator, at, acks, nextF, nextA, nextC, faults>>

(* One commit holds the delta, the subsumption of what exceeds retention and the new tombstones. *)
Complete(e) ==
  /\ ld[e].up /\ m.epoch = e
  /\ \E p \in ld[e].pend :
       LET L == ld[e]
           parent == RestorePoint(m)
           ends(i) == i.dropped = Open /\ i.file \in p.got[i.task].removed
           moved == { IF ends(i) THEN [i EXCEPT !.dropped = p.id] ELSE i : i \in m.intervals }
                    \cup { [task |-> t, file |-> f, born |-> p.id, dropped |-> Open] :
                           <<t, f>> \in { x \in Tasks \X Files : x[2] \in p.got[x[1]].added } }
           kept == Lineage(m, parent, Retain - 1)
           dropped == { c \in m.ids : ~Guard("RetentionKeepsNewest", c \in kept)
                                      /\ Guard("PinnedIsKept", c \notin m.pins) }
           ids == (m.ids \ dropped) \cup {p.id}
           left == { Tidied(i, ids) : i \in { j \in moved : j.dropped = Open \/ \E c \in ids : Holds(j, c) } }
           freed == { i.file : i \in moved } \ { i.file : i \in left }
           mm == [m EXCEPT !.ids = ids, !.intervals = left, !.head = None, !.pins = @ \cap ids,
                           !.parent = [c \in Ckpts |-> IF c = p.id THEN Nearest(m, parent, ids)
                                                       ELSE IF c \in ids THEN Nearest(m, @[c], ids) ELSE None],
                           !.released = (@ \cup freed) \ { i.file : i \in left }]
           \* Older pending ones are aborted; what is kept of newer ones is told against this one.
           pend == { [q EXCEPT !.got = [t \in Tasks |->
                        IF ~q.got[t].ok THEN NotYet
                        ELSE LET d == Rebased(q.got[t].added, q.got[t].removed, p.got[t].added, p.got[t].removed)
                             IN [q.got[t] EXCEPT !.added = d.added, !.removed = d.removed,
                                                 !.returned = @ \cap d.added]]]
                     : q \in { r \in L.pend : r.id # p.id /\ Guard("CommitsInOrder", r.id > p.id) } }
           g == Garbage(L, mm, pend)
           born == UNION { p.got[t].added : t \in Tasks }
       IN
       /\ Guard("AllAcknowledged", IsReady(p)) /\ IsFirst(p, L.pend)
       /\ m' = Condemn(mm, g)
       /\ cuts' = [cuts EXCEPT ![p.id] = [t \in Tasks |-> p.got[t].cut]]
       /\ ld' = [ld EXCEPT ![e] = [Unstaged(@, g \cup born) EXCEPT !.pend = pend]]
  /\ UNCHANGED <<objects, creator, at, acks, nextF, nextA, nextC, faults>>

(* Garbage is condemned without a completion. *)
Collect(e) ==
  /\ ld[e].up /\ m.epoch = e /\ NoneIsReady(ld[e].pend)
  /\ LET g == Garbage(ld[e], m, ld[e].pend) IN
     /\ g # {}
     /\ m' = Condemn(m, g)
     /\ ld' = [ld EXCEPT ![e] = Unstaged(@, g)]
  /\ UNCHANGED <<cuts, objects, creator, at, acks, nextF, nextA, nextC, faults>>

(* What was listed and is accounted for by nothing. *)
Sweep(e) ==
  /\ ld[e].up /\ m.epoch = e /\ NoneIsReady(ld[e].pend)
  /\ \E f \in objects :
       LET g == Garbage(ld[e], m, ld[e].pend) \cup {f} IN
       /\ ~Known(m, f) /\ f \notin m.released /\ f \notin ld[e].orphans /\ ~Named(ld[e].pend, f)
       /\ Guard("SweepsOnlyUnnamed", m.att[at[creator[f]].task] # creator[f])
       /\ m' = Condemn(m, g)
       /\ ld' = [ld EXCEPT ![e] = Unstaged(@, g)]
  /\ UNCHANGED <<cuts, objects, creator, at, acks, nextF, nextA, nextC, faults>>

(* Anybody deletes tombstones that it knows of, deposed leaders too. *)
Delete(e) ==
  /\ ld[e].up
  /\ \E f \in objects : Guard("DeletesOnlyTombstones", f \in Sees(e).tomb) /\ objects' = objects \ {f}
  /\ UNCHANGED <<m, cuts, creator, ld, at, acks, nextF, nextA, nextC, faults>>

(* A confirmed delete is forgotten by a later commit. *)
Forget(e) ==
  /\ ld[e].up /\ m.epoch = e /\ NoneIsReady(ld[e].pend)
  /\ \E f \in m.tomb \ objects :
       LET g == Garbage(ld[e], m, ld[e].pend) IN
       /\ m' = Condemn([m EXCEPT !.tomb = @ \ {f}], g)
       /\ ld' = [ld EXCEPT ![e] = Unstaged(@, g)]
  /\ UNCHANGED <<cuts, objects, creator, at, acks, nextF, nextA, nextC, faults>>

(* A guest pins a retained checkpoint, or ends its pin, keeping the epoch. *)
GuestPin(c) ==
  /\ c \in m.ids /\ c \notin m.pins /\ Cardinality(m.pins) < MaxPins
  /\ m' = [m EXCEPT !.pins = @ \cup {c}]
  /\ UNCHANGED <<cuts, objects, creator, ld, at, acks, nextF, nextA, nextC, faults>>
GuestUnpin(c) ==
  /\ c \in m.pins
  /\ m' = [m EXCEPT !.pins = @ \ {c}]
  /\ UNCHANGED <<cuts, objects, creator, ld, at, acks, nextF, nextA, nextC, faults>>

Next ==
  \/ Claim \/ LoseAck
  \/ \E c \in Ckpts : GuestPin(c) \/ GuestUnpin(c)
  \/ \E e \in Epochs : \/ Depose(e) \/ Trigger(e) \/ RecvAck(e) \/ Abort(e) \/ Expire(e) \/ Complete(e) \/ Collect(e) \/ Sweep(e) \/ Delete(e) \/ Forget(e)
                       \/ \E S \in SUBSET Tasks : \E c \in {None} \cup Ckpts : Deploy(e, S, c)
                       \/ \E a \in Attempts : Attach(a, e)
  \/ \E a \in Attempts : \/ Restored(a) \/ Crash(a) \/ Flush(a) \/ Compact(a) \/ Return(a) \/ Snapshot(a)
                         \/ Upload(a) \/ SendAck(a) \/ DropSnap(a) \/ ForgetBase(a) \/ TaskDelete(a)

Spec == Init /\ [][Next]_vars

(* ---------------- what must always hold ---------------- *)
\* The attempts whose files the current leader cares for.
Leads == m.epoch > 0 /\ ld[m.epoch].up
Current(a) == Leads /\ at[a].epoch = m.epoch /\ ld[m.epoch].att[at[a].task] = a

\* G1.
RetainedIsRecoverable == Refs(m) \subseteq objects
\* The intervals tell what sets would: a completed checkpoint is what its subtasks acknowledged.
IntervalsTellTheCut == \A c \in m.ids : \A t \in Tasks : FilesOf(m, c, t) = cuts[c][t]
\* Nothing that is condemned is referred to, whoever's view of the tombstones is asked.
TombstoneIsNeverReferredTo == \A e \in Epochs : ld[e].up => Sees(e).tomb \cap Refs(m) = {}
RestoreIsSafe == \A a \in Attempts : at[a].st = "restoring" /\ Current(a) => at[a].restored \subseteq objects
\* What an attempt will name again is there and stays.
ReuseIsSafe == \A a \in Attempts : at[a].st = "run" /\ Current(a) =>
                 ((at[a].live \cup at[a].left) \cap at[a].remote) \subseteq objects \ m.tomb
SnapshotIsSafe == \A a \in Attempts : at[a].st = "run" /\ Current(a) =>
                    \A s \in at[a].snaps : (\E p \in ld[m.epoch].pend : p.id = s.id) =>
                      (s.files \cap at[a].remote) \subseteq objects \ m.tomb
\* An acknowledgement that is counted has all its files stored, for good.
AckImpliesDurable == Leads => \A p \in ld[m.epoch].pend : \A t \in Tasks : p.got[t].cut \subseteq objects \ m.tomb
\* G7: what an honest attempt says of a pending checkpoint is no contradiction.
HonestIsNotContradicted ==
  \A k \in acks : (Leads /\ k.epoch = m.epoch /\ ld[m.epoch].att[k.task] = k.att /\ at[k.att].st = "run"
                   /\ \E p \in ld[m.epoch].pend : p.id = k.id) => ~Contradicts(m, k)
\* Retention and pins.
RetentionIsObeyed == Cardinality(m.ids \ (m.pins \cup {m.head})) <= Retain + MaxPins
PinsAreKept == m.pins \subseteq m.ids
RestorePointIsKept == m.head # None => m.head \in m.ids
\* Half of G5: each file in the store is one party's to delete, when it is not wanted any more.
EveryFileHasAnOwner ==
  Leads => \A f \in objects :
    LET a == creator[f] IN
    \/ Known(m, f) \/ f \in m.released
    \/ m.att[at[a].task] # a                                    \* the sweep's
    \/ at[a].st # "run"                                         \* the sweep's, once it is replaced
    \/ f \notin at[a].sent                                      \* the attempt's
    \/ ld[m.epoch].staged[f] # None                        \* the leader's
    \/ at[a].epoch # m.epoch /\ at[a].declared[f] # None        \* to be declared
    \/ \E k \in acks : k.att = a /\ k.epoch = m.epoch /\ f \in k.added
ConcurrencyIsBounded == \A e \in Epochs : Cardinality(ld[e].pend) <= MaxConcurrent

(* ---------------- what no step may do ---------------- *)
\* A completed checkpoint never changes, and is dropped by the leader alone.
CompletedNeverChanges == [][\A c \in m.ids \cap m'.ids : \A t \in Tasks : FilesOf(m, c, t) = FilesOf(m', c, t)]_vars
CompletedIsMonotone   == [][\A c \in m'.ids \ m.ids : \A d \in m.ids : d < c]_vars
PinnedIsNotDropped    == [][m.pins \subseteq m'.ids]_vars
\* Only the owner deletes: a tombstone, or what no acknowledgement ever named.
OnlyTheOwnerDeletes   == [][\A f \in objects \ objects' :
                              \/ f \in m.tomb \/ \E e \in Epochs : f \in ld[e].sees.tomb
                              \/ f \notin at[creator[f]].sent /\ f \in at[creator[f]].remote]_vars
\* G4: the manifest changes by its own epoch, a claim or a pin.
StaleIsPowerless      == [][m' # m => \/ m'.epoch = m.epoch + 1
                                      \/ m' = [m EXCEPT !.pins = m'.pins]
                                      \/ ld[m.epoch].up /\ \A e \in Epochs \ {m.epoch} : ld[e] = ld'[e]]_vars

(* ---------------- what must come about, once the budget of faults is used ---------------- *)
Fairness ==
  /\ WF_vars(Claim /\ m.epoch = 0)
  /\ WF_vars(LoseAck)
  /\ \A e \in Epochs :
       /\ WF_vars(RecvAck(e)) /\ WF_vars(Expire(e)) /\ WF_vars(Complete(e)) /\ WF_vars(Collect(e)) /\ WF_vars(Sweep(e))
       /\ WF_vars(Delete(e)) /\ WF_vars(Forget(e))
       /\ \A a \in Attempts : WF_vars(Attach(a, e))
       \* Who supervises the job replaces what died.
       /\ WF_vars(Deploy(e, { t \in Tasks : m.att[t] = None \/ Dead(m.att[t]) }, RestorePoint(m)))
  /\ \A a \in Attempts :
       /\ WF_vars(Restored(a)) /\ WF_vars(Snapshot(a)) /\ WF_vars(Upload(a)) /\ WF_vars(SendAck(a))
       /\ WF_vars(DropSnap(a)) /\ WF_vars(TaskDelete(a))
LiveSpec == Spec /\ Fairness

\* G6: every pending checkpoint of the leader ends, by completing as no fault is left to abort it.
IsPending(c) == Leads /\ \E p \in ld[m.epoch].pend : p.id = c
Progress == \A c \in Ckpts : IsPending(c) ~> ~IsPending(c)
\* G5: the store comes to hold what is retained and what running attempts still use.
InUse == UNION { at[a].live \cup at[a].left \cup UNION { s.files : s \in at[a].snaps } : a \in Attempts }
GarbageIsCollected == <>[](objects \subseteq Refs(m) \cup InUse \cup { f \in Files : Leads /\ ld[m.epoch].staged[f] # None })
=============================================================================
