// Package rehearse says, before a deployment, what it would do to the runs that are open: offline, and without a write.
//
// A store that is read only is looked through run by run. Of each it is said whether this build reads it (its journal, the definition it is pinned to, the
// requests people see), whether the code that it needs is linked, and, for each thing that the run waits for, what would come of each answer. That is found out
// by doing it: the deployed state machine and handlers go on with a copy of the run, in memory, on a clock of its own. No tool is entered, no model and no service
// is asked; what would be is noted, and the rehearsal of that answer ends at the first question to a model. It is done twice: under the definition that the run is
// pinned to, and with what the new deployment says of its agent beside it (A17). Where the two differ, something changes.
package rehearse
