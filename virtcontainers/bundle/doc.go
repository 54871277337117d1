// Package bundle reads what an engine passes to a shim: the OCI bundle
// directory, its config.json, and the annotations by which CRI engines say
// which containers belong to one pod.
//
// Everything here is input from outside. An error names the file or the
// annotation, what it holds and what was expected, and is an
// errdefs.ErrInvalidArgument or ErrNotFound.
package bundle
