// Package forward brings connections from the host to TCP ports in the guest and
// to UNIX sockets in its containers.
//
// A connection opens with one frame each way, then its bytes are those of
// the connection in the guest:
//
//	accepted ──ForwardOpen──> dialling ──ForwardOpened──> open ──both ends done──> closed
//	    └───────────── bad frame, refused, too many ────────┴──────────────> closed
//
// A half-close of either side is passed on, and the other direction goes on
// until its own end. Once a side is reset or takes no more bytes, the other
// side is let go too. Nothing is buffered beyond one block each way.
package forward
