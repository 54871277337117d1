// Package publish makes UNIX sockets on the host whose connections go to a
// socket inside a container:
//
//	client on the host            shim                          container
//	connect NAME --> Socket --> dial the agent --> connect PATH --> server
//	         <------- bytes or messages, half-closes -------------->
//
// A connection is accepted before the guest is asked, so one that the guest
// refuses ends after it was made. The number of connections and the time in
// which each must be made are bounded; a guest that accepts connections and
// never reads uses up its own socket's limit, until Close. Package reverse does
// the opposite: from a container to a server on the host.
package publish
