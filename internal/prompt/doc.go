// Package prompt builds what a model is shown: the request, the system text, the window of messages, long results and
// their pages, and the summary of what left the window.
package prompt
