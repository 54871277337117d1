// Package filesync copies a directory or a file of the host into the guest and
// repeats there what changes on the host: for volumes whose programs want to
// be told of changes by inotify(7), which no shared file system brings, and for
// sandboxes without one.
//
//	Start: copy all ──> watch (inotify) ──> changes ──> compare, send ─┐
//	                          ^──────────────────────────────────────┘
package filesync
