// Package secrets holds the secrets of tools on a laptop (Local), the rings of keys that sign what a deployment hands
// out (Ring), and the addresses at which calls are answered, which are signed with one (Token).
package secrets
