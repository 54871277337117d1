// Package engine says how the engines that drive a shim differ, where the
// task API does not: one Policy, chosen by the namespace and the address that the
// engine gives to "start". Nothing else of the shim compares names of engines.
package engine
