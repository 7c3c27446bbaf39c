// Package dialect reads and writes tool calls as text, for models without tool calls of their own.
package dialect
