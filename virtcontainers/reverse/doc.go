// Package reverse brings what a guest's processes connect to into the host: the
// engine's DNS resolver in the pod's network namespace, and UNIX sockets that
// are mounted into containers. It is the reverse of package forward; the agent's
// half is agent/reverse, and says how it goes.
//
// What can be reached is fixed by the host when a Listener or a Resolver is
// made: the guest names no address, and can only say that a connection waits.
// What it sends is bounded in number, length and time: connections of each
// Listener, datagrams and queries without an answer of each Resolver. A guest
// that takes no bytes uses up its own pod's number, until Close.
package reverse
