// Package isulad is the integration suite for iSulad: what that engine asks
// of a shim, asked by the small engine in package engine of the real shim,
// with real virtual machines.
//
// TestPoint1 to TestPoint10 are the ten things on which a shim made for
// containerd alone fails; the others are iSulad's sequences (start, exit,
// stop, rm -f, create or start that fails, exec, engine restart, engines
// before v2.1.3) and what must hold when the shim dies. Most tests add
// containers to one shared pod; those that are about the pod's own life boot
// their own.
//
// It needs root, and what "make build guest-image" makes.
package isulad
