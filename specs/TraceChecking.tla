--------------------------- MODULE TraceChecking ---------------------------
(* Whether traces of the simulator are behaviours of CheckpointLifecycle.

   `Lines` holds traces, each a sequence of lines: what the step was by its actions' names, and what
   it changed of every variable. `stillpoint-sim trace` writes them.

     Init -- line 1 --> state -- line 2, of two actions --> ? --> state -- line 3 --> ...

   A line of one action is a step of that action between two states that are both known. A line of
   several is as many steps, of which the states in between are any that the actions allow: the
   world did them at once. A trace is refused at the first line that no such steps lead to.         *)
EXTENDS CheckpointLifecycle, Sequences, TLC, TraceLines

VARIABLES
  trace,   \* which trace
  line,    \* the last line that was reached
  part,    \* how many actions of the next line were taken
  before   \* the state at the last line, while some but not all of them were

Compacted(a) == LET S == at[a].live \ at'[a].live IN S # {} /\ at[a].st = "run" /\ Change(a, S)

\* The actions, by name. Compact has its files from the state that is known.
Take(name) ==
  CASE name = "Claim"      -> Claim
    [] name = "LoseAck"    -> LoseAck
    [] name = "GuestPin"   -> \E c \in Ckpts : GuestPin(c)
    [] name = "GuestUnpin" -> \E c \in Ckpts : GuestUnpin(c)
    [] name = "Depose"     -> \E e \in Epochs : Depose(e)
    [] name = "Trigger"    -> \E e \in Epochs : Trigger(e)
    [] name = "RecvAck"    -> \E e \in Epochs : RecvAck(e)
    [] name = "Abort"      -> \E e \in Epochs : Abort(e)
    [] name = "Complete"   -> \E e \in Epochs : Complete(e)
    [] name = "Collect"    -> \E e \in Epochs : Collect(e)
    [] name = "Sweep"      -> \E e \in Epochs : Sweep(e)
    [] name = "Delete"     -> \E e \in Epochs : Delete(e)
    [] name = "Forget"     -> \E e \in Epochs : Forget(e)
    [] name = "Deploy"     -> \E e \in Epochs : \E S \in SUBSET Tasks : \E c \in {None} \cup Ckpts : Deploy(e, S, c)
    [] name = "Attach"     -> \E e \in Epochs : \E a \in Attempts : Attach(a, e)
    [] name = "Restored"   -> \E a \in Attempts : Restored(a)
    [] name = "Crash"      -> \E a \in Attempts : Crash(a)
    [] name = "Flush"      -> \E a \in Attempts : Flush(a)
    [] name = "Compact"    -> \E a \in Attempts : Compacted(a)
    [] name = "Snapshot"   -> \E a \in Attempts : Snapshot(a)
    [] name = "Upload"     -> \E a \in Attempts : Upload(a)
    [] name = "SendAck"    -> \E a \in Attempts : SendAck(a)
    [] name = "DropSnap"   -> \E a \in Attempts : DropSnap(a)
    [] name = "ForgetBase" -> \E a \in Attempts : ForgetBase(a)
    [] name = "TaskDelete" -> \E a \in Attempts : TaskDelete(a)
    [] OTHER               -> FALSE

\* What a line changes of a record, of a function of records, of a set.
Merged(old, new) ==
  [x \in DOMAIN old |-> IF x \notin DOMAIN new THEN old[x]
                        ELSE IF x \in {"staged", "declared", "parent"} THEN new[x] @@ old[x] ELSE new[x]]
MergedEach(old, new) == [x \in DOMAIN old |-> IF x \in DOMAIN new THEN Merged(old[x], new[x]) ELSE old[x]]

\* The state that a line leads to from the one at the line before it.
Becomes(l, b) ==
  /\ m' = Merged(b.m, l.m)
  /\ cuts' = l.cuts @@ b.cuts
  /\ objects' = l.objects
  /\ creator' = l.creator @@ b.creator
  /\ ld' = MergedEach(b.ld, l.ld)
  /\ at' = MergedEach(b.at, l.at)
  /\ acks' = (b.acks \ l.acks[1]) \cup l.acks[2]
  /\ nextF' = l.nextF /\ nextA' = l.nextA /\ nextC' = l.nextC
  /\ faults' = faults

Now == [m |-> m, cuts |-> cuts, objects |-> objects, creator |-> creator, ld |-> ld, at |-> at, acks |-> acks]
Nothing == [m |-> {}]

TraceInit == Init /\ trace \in 1..Len(Lines) /\ line = 0 /\ part = 0 /\ before = Nothing

TraceNext ==
  /\ line < Len(Lines[trace])
  /\ LET l == Lines[trace][line + 1]
         last == part + 1 = Len(l.by)
     IN
     IF last
     THEN /\ Becomes(l, IF part = 0 THEN Now ELSE before)
          /\ Take(l.by[part + 1])
          /\ line' = line + 1 /\ part' = 0 /\ before' = Nothing
          /\ trace' = trace
          /\ PrintT(<<"line", trace, line + 1>>)
     ELSE /\ part < Len(l.by)
          /\ Take(l.by[part + 1])
          /\ part' = part + 1 /\ before' = (IF part = 0 THEN Now ELSE before)
          /\ UNCHANGED <<trace, line>>
=============================================================================
