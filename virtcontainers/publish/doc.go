// Package publish makes UNIX sockets on the host whose connections go to a
// socket inside a container:
//
//	client on the host            shim                          container
//	connect NAME --> Socket --> dial the agent --> connect PATH --> server
//	         <------- bytes or messages, half-closes -------------->
//
// A connection is accepted before the guest is dialed, so one that the guest
// refuses is established and then closed. The number of connections and the time
// to establish each are bounded. A guest that accepts connections and
// never reads uses up its own socket's limit, until Close. Package reverse does
// the opposite: from a container to a server on the host.
package publish
