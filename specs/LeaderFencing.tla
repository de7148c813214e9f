--------------------------- MODULE LeaderFencing ---------------------------
(* How a commit of the manifest comes about, and what keeps superseded leaders powerless.

     Load -> StartCommit -> StorePut, PutDone -> SendSwap -> StoreSwaps -> SwapDone    committed
                                                    |   ^        |
                                                 Unknown|     SwapRefused -> Judge     committed,
                                                        +---------------------+        overtaken, lost

   A commit puts a record under a fresh name, then swaps CURRENT if that still is what the commit
   builds on. Requests and answers may be lost; a request whose answer was given up may land later.
   A commit in doubt is settled only by CURRENT having moved. Lives of coordinators claim, lead, are
   deposed without noticing and go on; guests commit pins under the leader's epoch; an attempt of a
   subtask outlives them all and obeys the highest epoch that it has seen.

   `history` is all that CURRENT ever was; CURRENT itself shows its length (the version), the last
   epoch and the last `TailLength` names. It refines AtomicCommit.                                     *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Leaders, Guests,  \* lives: numbers from 1
  MaxName,          \* commits begun
  MaxTry,           \* swaps sent of one commit
  TailLength,       \* names of records that CURRENT shows
  HeldOpen          \* names of guards that let everything pass

Lives == Leaders \cup Guests
Names == 1..MaxName
None  == 0

VARIABLES
  history,               \* commits that took place: [name, epoch]
  owner, base, outcome,  \* of each commit, see AtomicCommit
  epochOf,               \* Names -> the epoch that the commit is made under
  records,               \* names of records in the store
  puts,                  \* names whose record is under way to the store
  requests,              \* swaps under way to the store: [name, try]
  answers,               \* answers under way to the writer: [name, try, done]
  life,                  \* Lives -> what that life knows
  obeys,                 \* the epoch that the attempt follows
  acks,                  \* epochs to which it has acknowledged
  counted,               \* Leaders -> epochs of others whose acknowledgements it has counted
  nextN

vars == <<history, owner, base, outcome, epochOf, records, puts, requests, answers, life, obeys, acks, counted, nextN>>
store == <<history, records, puts, requests, answers>>
commits == <<owner, base, outcome, epochOf, nextN>>
attempt == <<obeys, acks, counted>>

Guard(name, condition) == name \in HeldOpen \/ condition

Version == Len(history)
EpochNow == IF history = <<>> THEN 0 ELSE history[Version].epoch
Took(n) == \E i \in 1..Version : history[i].name = n

Init ==
  /\ history = <<>> /\ records = {} /\ puts = {} /\ requests = {} /\ answers = {}
  /\ owner = [n \in Names |-> 0] /\ base = [n \in Names |-> 0]
  /\ outcome = [n \in Names |-> "none"] /\ epochOf = [n \in Names |-> 0]
  /\ life = [w \in Lives |-> [phase |-> "start", epoch |-> 0, version |-> 0, step |-> "none",
                              name |-> None, doubt |-> FALSE, try |-> 0]]
  /\ obeys = 0 /\ acks = {} /\ counted = [w \in Leaders |-> {}]
  /\ nextN = 1

Alive(w) == life[w].phase \notin {"deposed", "dead"}

\* A life that comes to this phase with no commit under way.
Idle(w, phase) == [life EXCEPT ![w].phase = phase, ![w].step = "none", ![w].name = None, ![w].doubt = FALSE, ![w].try = 0]

(* CURRENT is read, at the start and after a claim was overtaken. *)
Load(w) ==
  /\ life[w].phase = "start"
  /\ w \in Leaders => \A v \in Leaders : v < w => life[v].phase # "start" \/ life[v].epoch > 0   \* numbered as they come
  /\ life' = [life EXCEPT ![w].phase = "loaded", ![w].version = Version,
                          ![w].epoch = IF w \in Guests THEN EpochNow ELSE EpochNow + 1]
  /\ UNCHANGED <<store, commits, attempt>>

(* A claim, a pin, or whatever a leader commits: under a fresh name, on top of what it knows. *)
StartCommit(w) ==
  /\ life[w].phase \in {"loaded", "leads"} /\ life[w].step = "none" /\ nextN <= MaxName
  /\ w \in Guests => life[w].epoch > 0
  /\ nextN' = nextN + 1
  /\ owner' = [owner EXCEPT ![nextN] = w]
  /\ base' = [base EXCEPT ![nextN] = life[w].version]
  /\ epochOf' = [epochOf EXCEPT ![nextN] = life[w].epoch]
  /\ outcome' = [outcome EXCEPT ![nextN] = "open"]
  /\ puts' = puts \cup {nextN}
  /\ life' = [life EXCEPT ![w].step = "putting", ![w].name = nextN, ![w].doubt = FALSE, ![w].try = 0]
  /\ UNCHANGED <<history, records, requests, answers, attempt>>

StorePut(n) ==
  /\ n \in puts /\ puts' = puts \ {n} /\ records' = records \cup {n}
  /\ UNCHANGED <<history, requests, answers, commits, life, attempt>>

(* Done, or it exists already with the same bytes. *)
PutDone(w) ==
  /\ Alive(w) /\ life[w].step = "putting" /\ life[w].name \in records
  /\ life' = [life EXCEPT ![w].step = "swapping"]
  /\ UNCHANGED <<store, commits, attempt>>

SendSwap(w) ==
  /\ Alive(w) /\ life[w].step = "swapping" /\ life[w].try < MaxTry
  /\ requests' = requests \cup {[name |-> life[w].name, try |-> life[w].try + 1]}
  /\ life' = [life EXCEPT ![w].step = "waiting", ![w].try = @ + 1]
  /\ UNCHANGED <<history, records, puts, answers, commits, attempt>>

(* The store takes a swap only while CURRENT is what the commit builds on. (A request or an answer is
   lost if its step is never taken.) *)
StoreSwaps ==
  /\ \E r \in requests :
       LET takes == Version = base[r.name] IN
       /\ requests' = requests \ {r}
       /\ history' = IF takes THEN Append(history, [name |-> r.name, epoch |-> epochOf[r.name]]) ELSE history
       /\ answers' = answers \cup {[name |-> r.name, try |-> r.try, done |-> takes]}
  /\ UNCHANGED <<records, puts, commits, life, attempt>>

(* Some stores answer a conflict although nothing is stored. *)
StoreRefusesForNothing ==
  /\ \E r \in requests :
       /\ requests' = requests \ {r}
       /\ answers' = answers \cup {[name |-> r.name, try |-> r.try, done |-> FALSE]}
  /\ UNCHANGED <<history, records, puts, commits, life, attempt>>

(* No answer came: the same swap again. What was sent before may still land. *)
Unknown(w) ==
  /\ Alive(w) /\ life[w].step = "waiting"
  /\ life' = [life EXCEPT ![w].doubt = TRUE, ![w].step = "swapping"]
  /\ UNCHANGED <<store, commits, attempt>>

(* The store answers that this try failed for certain, as often as it is asked. That ends the commit
   only if no try of it is in doubt. A claimant begins anew then, and a guest gives up. *)
FailsForCertain(w) ==
  /\ Alive(w) /\ life[w].step = "waiting" /\ [name |-> life[w].name, try |-> life[w].try] \in requests
  /\ requests' = requests \ {[name |-> life[w].name, try |-> life[w].try]}
  /\ IF Guard("DoubtIsRepeated", ~life[w].doubt)
     THEN /\ outcome' = [outcome EXCEPT ![life[w].name] = "refused"]
          /\ records' = IF w \in Guests THEN records ELSE records \ {life[w].name}    \* a guest leaves it to the sweep
          /\ life' = Idle(w, IF w \in Guests THEN "dead" ELSE IF life[w].phase = "leads" THEN "leads" ELSE "start")
     ELSE life' = [life EXCEPT ![w].step = "swapping"] /\ UNCHANGED <<outcome, records>>
  /\ UNCHANGED <<history, puts, answers, owner, base, epochOf, nextN, attempt>>

Settled(w, result) ==
  /\ outcome' = [outcome EXCEPT ![life[w].name] = result]
  /\ UNCHANGED <<owner, base, epochOf, nextN>>

(* What a life does once its commit is done: a claimant leads, a guest is content. *)
Done(w, version) ==
  life' = [life EXCEPT ![w].phase = IF w \in Guests THEN "dead" ELSE "leads", ![w].step = "none", ![w].name = None,
                       ![w].version = version, ![w].doubt = FALSE, ![w].try = 0]

SwapDone(w) ==
  /\ Alive(w) /\ life[w].step = "waiting"
  /\ [name |-> life[w].name, try |-> life[w].try, done |-> TRUE] \in answers
  /\ answers' = { r \in answers : r.name # life[w].name }
  /\ Settled(w, "committed")
  /\ Done(w, base[life[w].name] + 1)
  /\ UNCHANGED <<history, records, puts, requests, attempt>>

SwapRefused(w) ==
  /\ Alive(w) /\ life[w].step = "waiting"
  /\ [name |-> life[w].name, try |-> life[w].try, done |-> FALSE] \in answers
  /\ answers' = { r \in answers : r.name # life[w].name }
  /\ life' = [life EXCEPT ![w].step = "judging"]
  /\ UNCHANGED <<history, records, puts, requests, commits, attempt>>

HigherLeads(w) == ~Guard("DeposedByHigherEpoch", EpochNow <= life[w].epoch)

(* A leader between two commits reads CURRENT, because somebody spoke of a higher epoch. *)
Depose(w) ==
  /\ life[w].phase = "leads" /\ life[w].step = "none" /\ HigherLeads(w)
  /\ life' = [life EXCEPT ![w].phase = "deposed"]
  /\ UNCHANGED <<store, commits, attempt>>

(* A refusal is judged by reading CURRENT back. *)
Judge(w) ==
  /\ Alive(w) /\ life[w].step = "judging"
  /\ LET n == life[w].name
         moved == Version > base[n]
         shown == Version - base[n] <= TailLength    \* else CURRENT does not show what came of it
         own == moved /\ shown /\ Guard("OwnNonceMeansDone", history[base[n] + 1].name = n)
         deposed == HigherLeads(w)
     IN
     CASE ~moved ->
            /\ life' = [life EXCEPT ![w].step = "swapping"]
            /\ UNCHANGED <<records, commits>>
       [] moved /\ ~shown ->     \* nobody will learn it from this life
            /\ life' = Idle(w, "deposed")
            /\ UNCHANGED <<records, commits>>
       [] own ->
            /\ Settled(w, "committed")
            /\ IF deposed /\ w \in Leaders THEN life' = Idle(w, "deposed") ELSE Done(w, Version)
            /\ UNCHANGED records
       [] OTHER ->
            /\ Settled(w, "refused")
            /\ records' = records \ {n}
            \* A leader follows a guest's pin, a guest whatever overtook it; a claim that was overtaken begins anew.
            /\ LET phase == CASE w \in Guests -> "loaded"
                            [] life[w].phase = "leads" -> IF deposed THEN "deposed" ELSE "leads"
                            [] OTHER -> "start"
               IN life' = [Idle(w, phase) EXCEPT ![w].version = IF phase \in {"leads", "loaded"} THEN Version ELSE @,
                                                 ![w].epoch = IF phase = "loaded" THEN EpochNow ELSE @]
  /\ UNCHANGED <<history, puts, requests, answers, attempt>>

Crash(w) ==
  /\ Alive(w)
  /\ life' = Idle(w, "dead")
  /\ UNCHANGED <<store, commits, attempt>>

(* A leader sweeps records: of epochs that are over, or for versions that CURRENT has reached
   without them. What it knows of CURRENT may be old. *)
SweepRecord(w) ==
  /\ w \in Leaders /\ life[w].phase = "leads" /\ life[w].step = "none"
  /\ \E n \in records :
       /\ \/ Guard("SweepsOnlyOlderEpochs", epochOf[n] < life[w].epoch)
          \/ epochOf[n] = life[w].epoch /\ Guard("SweepsWhatCameTooLate", base[n] + 1 <= life[w].version)
       /\ Guard("SweepsNothingNamed", \A i \in 1..life[w].version : history[i].name # n)
       /\ records' = records \ {n}
  /\ UNCHANGED <<history, puts, requests, answers, commits, life, attempt>>

(* An attempt hears of a leader, by a trigger or by its first message: it attaches if that is newer,
   and acknowledges to it. *)
Attach(w) ==
  /\ w \in Leaders /\ life[w].phase = "leads"
  /\ Guard("HighestEpochIsObeyed", life[w].epoch >= obeys)
  /\ obeys' = life[w].epoch /\ acks' = acks \cup {life[w].epoch}
  /\ UNCHANGED <<store, commits, life, counted>>

RecvAck(w) ==
  /\ w \in Leaders /\ life[w].phase = "leads"
  /\ \E e \in acks : Guard("EpochIsCurrent", e = life[w].epoch) /\ counted' = [counted EXCEPT ![w] = @ \cup ({e} \ {life[w].epoch})]
  /\ UNCHANGED <<store, commits, life, obeys, acks>>

Next ==
  \/ \E n \in Names : StorePut(n)
  \/ StoreSwaps \/ StoreRefusesForNothing
  \/ \E w \in Lives : \/ Load(w) \/ StartCommit(w) \/ PutDone(w) \/ SendSwap(w) \/ Unknown(w) \/ FailsForCertain(w)
                      \/ SwapDone(w) \/ SwapRefused(w) \/ Judge(w) \/ Depose(w) \/ Crash(w)
                      \/ SweepRecord(w) \/ Attach(w) \/ RecvAck(w)

Spec == Init /\ [][Next]_vars

(* ---------------- what must always hold ---------------- *)
Atomic == INSTANCE AtomicCommit WITH Writers <- Lives
\* Each behaviour is one of a register that is swapped in one step.
RefinesAtomicCommit == Atomic!AbsSpec
\* Nobody acts on an outcome that is not so, or that may yet change.
ReportedIsCommitted == \A n \in Names : /\ outcome[n] = "committed" => Took(n)
                                        /\ outcome[n] = "refused" => ~Took(n)
\* What CURRENT names can be read.
NamedIsReadable == \A i \in 1..Version : history[i].name \in records
OneLeaderPerEpoch == \A v, w \in Leaders : v # w /\ life[v].phase = "leads" /\ life[w].phase = "leads" => life[v].epoch # life[w].epoch
\* G4: nothing is committed under an epoch that is over, an attempt never goes back to one, and no
\* leader counts what was said to another.
StaleIsPowerless == [][/\ Len(history') > Len(history) => history'[Len(history')].epoch >= EpochNow
                       /\ obeys' >= obeys]_vars
OnlyOwnAcknowledgementsCount == \A w \in Leaders : counted[w] = {}
=============================================================================
