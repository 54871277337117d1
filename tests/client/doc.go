// Package client runs containerd's own suite of its client (the package
// integration/client of containerd's module) with runc and with Katabox, and
// compares test by test: what passes with runc passes with Katabox, except for
// the list in known_test.go, which is also in docs/compat.md.
//
//	tests/tools/clientsuite.sh: the suite as a program, in build
//	buildImages: the images that it pulls ──> proxy: every registry, on 127.0.0.1
//	runSuite: the program, with the proxy and a runtime ──> results
//
// The suite starts containerd under fixed paths, so it gets a private host
// (tests/engines/host). It knows nothing of Katabox: the runtime is named in
// its environment (TEST_RUNTIME).
package client
