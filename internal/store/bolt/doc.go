// Package bolt keeps a store.Table in one file, for the local engine. It is durable: when Write returns nil, the file
// and what it needs to be found have been synced. One process has the file open at a time; others get ErrLocked at
// once.
//
// The file is a bbolt database with two buckets, NUL being the separator that no key holds:
//
//	items   PK NUL SK                        the item: attributes, index and body (codec.go), checksummed with its key
//	index   Index NUL IndexSort NUL PK NUL SK    nothing: the row points at the item
//
// The index is written in the item's own transaction, so it never lags. Pages are 16 KiB and filled, because keys are
// mostly appended: measured on the journal's entries this stores 1.3 bytes for one, where bbolt's defaults store 1.7,
// at the same speed. Concurrent Writes share a commit (group.go); a lone one waits for nobody.
package bolt
