// Package engines plays one list of scenes with the container engines that
// people use at the command line, first with runc and then with Katabox, and
// compares the outcomes row by row.
//
//	scenes (run, exec, cp, networks, ...)
//	   └─ stage: the engine's client, a runtime, names, rows
//	        └─ Engine: nerdctl, Docker 28 (shim by name), Docker 20.10 and Podman
//	           (OCI command line), each on a private host (package host)
//
// A difference must be in the list of known ones (known_test.go), which is also
// the table in docs/compat.md; and every known difference must be seen.
package engines
