// Package run tests kata-runtime's containers without an engine, from outside:
// the program itself, with real machines, images of each kind, a registry on
// the loopback, and the user-mode networks that are installed. Each test ends
// with a check for leftovers.
package run
