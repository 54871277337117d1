// Package podnet owns the network of one pod: its namespace on the host, the
// guest's NICs and network configuration, the ports that are forwarded into the
// guest, and the engine's DNS resolvers.
//
//	New ──> Open ────> Plug ─────> Connect ──> Forward ──> Tell ──> Watch
//	        engine's   NICs, VM's  the agent   ports       guest    until
//	        namespace  namespace                           set up   its ctx ends
//
//	        Close                              StopForward
//
// The pod's namespace is the one that the engine made. If it made none, it is
// the VM process's, into which Docker moves links later. Package network works in
// the namespace, package forward forwards connections into the guest, and package
// reverse forwards the guest's connections to the host.
package podnet
