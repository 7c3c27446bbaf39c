// Package released holds what is stored by released versions to what it was: golden files are added and never changed.
package released
