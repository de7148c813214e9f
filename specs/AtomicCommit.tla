---------------------------- MODULE AtomicCommit ----------------------------
(* What a commit of the manifest is to everything above it: a register with an epoch, changed only
   by a compare-and-swap, whose writer may be left without an answer.

     Begin --> Commit ------> Learn "committed"
         \---> Refuse ------> Learn "refused"
     and at any time before Learn the writer dies: then nobody learns.

   `register` is the newest committed value and the epoch it was committed under. A commit is
   identified by its own name (its nonce), so that "is it mine?" has an answer.

   `LeaderFencing` implements it with a record, CURRENT and four kinds of answers.
   `CheckpointLifecycle` uses it: each of its commits is one step, allowed only to the epoch that
   the register shows.                                                                           *)
EXTENDS Naturals, Sequences

CONSTANTS Writers,  \* lives that may commit, leaders and guests: numbers from 1
          Names     \* names of commits

VARIABLES
  history,  \* the commits that took place, oldest first: [name, epoch]
  owner,    \* Names -> the writer that began it, or 0
  base,     \* Names -> how many commits it builds on
  outcome   \* Names -> "none", "open", "committed", "refused" as its writer knows it

absVars == <<history, owner, base, outcome>>

EpochNow == IF history = <<>> THEN 0 ELSE history[Len(history)].epoch
Took(n)  == \E i \in 1..Len(history) : history[i].name = n
Passed(n) == Len(history) > base[n]

AbsInit ==
  /\ history = <<>>
  /\ owner = [n \in Names |-> 0] /\ base = [n \in Names |-> 0]
  /\ outcome = [n \in Names |-> "none"]

\* A commit begins from some state that the register had.
Begin(w, n) ==
  /\ outcome[n] = "none"
  /\ \E b \in 0..Len(history) : base' = [base EXCEPT ![n] = b]
  /\ owner' = [owner EXCEPT ![n] = w] /\ outcome' = [outcome EXCEPT ![n] = "open"]
  /\ UNCHANGED history

\* It takes place: at once, only on the state that it builds on, only once, never going back in epochs.
Commit(n, e) ==
  /\ outcome[n] = "open" /\ ~Took(n) /\ Len(history) = base[n] /\ e >= EpochNow
  /\ history' = Append(history, [name |-> n, epoch |-> e])
  /\ UNCHANGED <<owner, base, outcome>>

\* Its writer learns what became of it, only once that is final.
Learn(n) ==
  /\ outcome[n] = "open"
  /\ \/ Took(n) /\ outcome' = [outcome EXCEPT ![n] = "committed"]
     \/ ~Took(n) /\ Passed(n) /\ outcome' = [outcome EXCEPT ![n] = "refused"]
  /\ UNCHANGED <<history, owner, base>>

\* It was never tried, and never will be.
GiveUp(n) ==
  /\ outcome[n] = "open" /\ ~Took(n)
  /\ outcome' = [outcome EXCEPT ![n] = "refused"]
  /\ UNCHANGED <<history, owner, base>>

AbsNext == \E n \in Names : \/ \E w \in Writers : Begin(w, n)
                            \/ \E e \in 0..Len(history) + 1 : Commit(n, e)
                            \/ Learn(n) \/ GiveUp(n)

AbsSpec == AbsInit /\ [][AbsNext]_absVars

\* Nobody is told what is not so, and what was told stays so.
OutcomeIsTrue == \A n \in Names : /\ outcome[n] = "committed" => Took(n)
                                  /\ outcome[n] = "refused" => ~Took(n)
OneCommitPerName == \A i, j \in 1..Len(history) : history[i].name = history[j].name => i = j
EpochsOnlyRise == \A i, j \in 1..Len(history) : i <= j => history[i].epoch <= history[j].epoch
HistoryOnlyGrows == [][Len(history') >= Len(history) /\ SubSeq(history', 1, Len(history)) = history]_absVars
=============================================================================
