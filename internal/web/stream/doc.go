// Package stream tells a run as one sequence of events (semantics.md, 3.10) and writes them in the forms that clients know (1.9).
//
// The events of an entry are a pure function of the entry, of the run as it was before it and of the definition the run is pinned to. So
// the stream of a run is that of its entries, one after the other, and whoever has seen it up to some event, named by the entry's sequence
// and the event's index in it, gets exactly the rest. No event is stored: what is stored is the journal.
//
// What holds of the order. An attempt begins with run_start and ends with run_finish, behind which there is nothing but the next attempt's
// run_start; parking ends an attempt with the termination suspended. step_end stands before what becomes of the step's calls. Of what one
// entry says of calls, those that came to wait stand before those that are done. An event that was not committed is in no stream.
//
// Text as a model writes it (Delta) is told while it is written and never again: it has no sequence, and the whole of it is in the step's
// inference_complete.
package stream
