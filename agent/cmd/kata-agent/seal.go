//go:build cgo

package main

/*
#cgo CFLAGS: -Wall -O2
*/
import "C"

// seal.c runs before Go does. Each start of a container executes the agent's
// own binary inside it, so the container must be unable to change that file
// (CVE-2019-5736). libcontainer copies a binary that is not sealed each time;
// executing a sealed copy once, at boot, saves all later copies.
