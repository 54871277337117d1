// Package shimtest turns a test program into a shim whose guests are in memory,
// for tests of code that calls a shim.
package shimtest
