----------------------- MODULE MCCheckpointLifecycle -----------------------
(* Bounds of CheckpointLifecycle stand in the configuration files named after this module. Here are
   its witnesses: each says that something never happens, and TLC must find that it does. Without
   them an invariant could hold because nothing ever comes about. *)
EXTENDS CheckpointLifecycle

FileIn(set) == \E f \in Files : f \in set
Leader == IF m.epoch = 0 THEN NoLeader ELSE ld[m.epoch]

NeverTwoPending         == \A e \in Epochs : Cardinality(ld[e].pend) < 2
NeverTwoRetained        == Cardinality(m.ids) < 2
NeverOvertakenBase      == \A k \in acks : k.base = None \/ k.base = Newest(m)
                             \/ ~ \E p \in Leader.pend : p.id = k.id
NeverHandedOn           == \A i \in m.intervals : i.dropped = Open \/ i.born \in m.ids \/ ~ \E c \in m.ids : Holds(i, c)
NeverForgotten          == \A f \in Files : f \in objects \cup m.tomb \/ \A c \in Ckpts : \A t \in Tasks : f \notin cuts[c][t]
NeverGoesBack           == m.head = None \/ m.head = Newest(m)
NeverComesBack          == \A i, j \in m.intervals : i.file = j.file /\ i.task = j.task => i = j
NeverPinKeeps           == \A c \in m.pins : Cardinality({ d \in m.ids : d > c }) < Retain
NeverAttached           == \A a \in Attempts : \A e, d \in Epochs : e < d /\ ld[e].att[at[a].task] = a => ld[d].att[at[a].task] # a
NeverReplacedGoesOn     == \A a \in Attempts : at[a].st = "run" => m.att[at[a].task] = a

NeverOutOfOrder         == [][\A p \in Leader.pend : m'.epoch = m.epoch /\ Newest(m') # Newest(m) => p.id >= Newest(m')]_vars
NeverStagedIsCondemned  == [][\A f \in m'.tomb \ m.tomb : Leader.staged[f] = None]_vars
NeverReleasedIsCondemned == [][\A f \in m'.tomb \ m.tomb : f \notin Refs(m)]_vars
NeverUploadTakenOver    == [][\A a \in Attempts : at'[a].lastSnap > at[a].lastSnap /\ Cardinality(Leader.pend) = 1
                                => at[a].live \cap at[a].remote \subseteq Refs(m) \cup at[a].restored]_vars
NeverDeletedByItsMaker  == [][\A f \in objects \ objects' : \E e \in Epochs : f \in Sees(e).tomb]_vars
NeverDeletedByDeposed   == [][\A f \in objects \ objects' : \A e \in Epochs : f \in Sees(e).tomb => e = m.epoch]_vars
NeverSweeps             == [][\A f \in m'.tomb \ m.tomb : m.att[at[creator[f]].task] = creator[f] \/ f \in Refs(m)]_vars
NeverReturns            == [][\A a \in Attempts : at[a].left \subseteq at'[a].left \/ at'[a].lastSnap # at[a].lastSnap \/ at'[a].st = "dead"]_vars
=============================================================================
