// Package inside is the half of libcontainer that runs inside a new
// container: "PROGRAM init", started by package container. A program that
// imports it (and is built with cgo) never gets to its main function when it
// is started so. As "PROGRAM nothing" it ends at once: package container warms up
// a guest with that.
//
// It is its own package, with no import but libcontainer, because Go
// initialises packages as soon as their imports are: the container's process
// then does not wait for the rest of the program, a third of its start.
package inside
