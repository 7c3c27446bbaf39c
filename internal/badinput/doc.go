// Package badinput makes bad input out of good: of a JSON text that an edge takes, every way in which each of its keys
// can be wrong, and of a text that is read in another form, what breaks its reader. What a key may hold is a line of a
// table (Field); the ways in which it can be wrong are not: a new key needs a line, and a new way is met by every key
// of every edge.
//
// An Edge says how input comes in, and what can be seen of what it did. Refuses is the one judge of all kinds of input:
// the error that is due, which names what is wrong, nothing written or sent, and nothing of the input told to anybody
// but whoever sent it.
package badinput

// Canary stands in every value that a case makes up. What a log, a metric, a header or an error has of it is an echo.
const Canary = "canary-7d0f3a91"
