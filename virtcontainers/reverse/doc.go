// Package reverse forwards connections of a guest's processes to servers on the
// host: the engine's DNS resolver in the pod's network namespace, and UNIX
// sockets that are mounted into containers. It is the reverse of package
// forward; agent/reverse is the agent's half and describes the protocol.
//
// What can be reached is fixed by the host when a Listener or a Resolver is
// made: the guest names no address, and can only announce that a connection
// waits. What it sends is bounded in number, length and time: connections of
// each Listener, datagrams and unanswered queries of each Resolver. A guest
// that does not read uses up its own pod's limit, until Close.
package reverse
