// Package engine describes how the engines that drive a shim differ in ways that
// the task API does not express: one Policy, chosen by the namespace and the
// address that the engine passes to "start". No other part of the shim compares
// names of engines.
package engine
