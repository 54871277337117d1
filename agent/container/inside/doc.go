// Package inside is the half of libcontainer that runs inside a new
// container: "PROGRAM init", started by package container. A program that
// imports it (and is built with cgo) never gets to its main function when it
// is started so.
//
// It is its own package, with no import but libcontainer. Go initialises a package
// once its imports are, and of several that are ready the first by path (cmd/link,
// inittask.go). So the container's process waits for most of the agent's other
// packages too, which must do little when they are initialised.
package inside
