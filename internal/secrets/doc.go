// Package secrets holds secrets of tools (Local, Vault), the rings of keys that sign what a deployment hands out (Ring),
// and the addresses at which calls are answered, which are signed with one (Token).
package secrets
