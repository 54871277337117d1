// Package podnet owns the network of one pod: its namespace on the host, the
// guest's NICs, what the guest is told, the ports that are forwarded into the
// guest and the engine's DNS resolvers that the guest reaches.
//
//	New ──> Open ────> Plug ─────> Connect ──> Forward ──> Tell ──> Watch
//	        engine's   NICs, VM's  the agent   ports       guest    until
//	        namespace  namespace                           set up   its ctx ends
//
//	        Close                              StopForward
//
// The pod's namespace is the one that the engine made. Where it made none, it is
// that of the VM's process, into which Docker moves links later. What happens
// there is package network's work; package forward brings connections into the
// guest, and package reverse those of the guest to the host.
package podnet
