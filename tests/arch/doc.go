// Package arch holds tests about the shape of the source: which package may
// import which, that every package says what it is, and that no file grows
// beyond reading. It has no code of its own, needs neither root nor a VM, and
// states the import rules that .golangci.yml gives to the linter.
//
//	shim/cmd ---> shim ---> virtcontainers ---> hypervisor
//	                               |
//	                               +----------> agent/api <--- agent/*
package arch
