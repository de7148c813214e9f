-------------------------- MODULE MCLeaderFencing --------------------------
(* Bounds of LeaderFencing stand in the configuration files named after this module. Here are its
   witnesses, each of which TLC must find to come about. *)
EXTENDS LeaderFencing

NeverInDoubt           == \A w \in Lives : ~life[w].doubt
NeverDeposed           == \A w \in Leaders : life[w].phase # "deposed"
NeverTwoBelieveToLead  == \A v, w \in Leaders : life[v].phase = "leads" /\ life[w].phase = "leads" => v = w
NeverDoneByReading     == [][\A w \in Lives : ~(life[w].step = "judging" /\ life[w].name # None
                               /\ outcome[life[w].name] = "open" /\ outcome'[life[w].name] = "committed")]_vars
NeverLandsLate         == [][Len(history') > Len(history)
                               => life[owner[history'[Len(history')].name]].name = history'[Len(history')].name]_vars
NeverOvertakenByGuest  == \A w \in Leaders : ~(life[w].phase = "leads" /\ life[w].step = "judging"
                               /\ Version > base[life[w].name] /\ owner[history[base[life[w].name] + 1].name] \in Guests)
NeverFollowsAnother    == obeys < 2
NeverSweptRecord       == [][records \subseteq records' \/ outcome' # outcome]_vars
=============================================================================
