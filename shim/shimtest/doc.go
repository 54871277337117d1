// Package shimtest makes a test program a shim whose guests are in memory, for
// tests of what calls a shim. It is used by tests only.
package shimtest
