// Package publish makes UNIX sockets on the host whose connections go to a
// socket inside a container:
//
//	client on the host            shim                          container
//	connect NAME --> Socket --> dial the agent --> connect PATH --> server
//	         <------- bytes or messages, half-closes -------------->
//
// A connection is accepted before the guest is asked, so one that the guest
// refuses ends after it was made. The number of connections and the time in
// which each must be made are bounded; a guest that takes connections and never
// reads them uses up its own socket's number, until Close. The other way, from a
// container to a server on the host, is package reverse.
package publish
