// Package forward forwards connections from the host to TCP ports in the guest
// and to UNIX sockets in its containers.
//
// A connection begins with one frame each way; then it carries the bytes of the
// connection in the guest:
//
//	accepted ──ForwardOpen──> dialling ──ForwardOpened──> open ──both ends done──> closed
//	    └───────────── bad frame, refused, too many ────────┴──────────────> closed
//
// A half-close of either side is passed on, and the other direction continues
// until it ends too. A reset of either side is passed on, too, if the host has the
// ends of its connection's bytes marked; else it sees an end of file, because a
// vsock connection cannot be reset by its owner. UNIX sockets cannot either: their
// clients and servers see an end of file. Nothing is buffered beyond one block each way.
package forward
