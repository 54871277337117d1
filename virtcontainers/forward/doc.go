// Package forward makes the guest's TCP ports answer on the host, in the pod's
// network namespace.
//
// CRI's port-forward enters that namespace and connects to the pod's
// "localhost": 127.0.0.1, then ::1. The process that listens there is in the
// guest, with its own loopback. A Forwarder answers in its place:
//
//	client in the namespace              shim                          guest
//	connect 127.0.0.1:80 --> sk_lookup program
//	                              |
//	                          listener --> dial "127.0.0.1:80" --> listener
//	                         <------ bytes, half-closes, resets ------>
//
// The program (BPF_PROG_TYPE_SK_LOOKUP, since Linux 5.9) is attached to the
// namespace and runs when the kernel looks for the listener of a new
// connection. It picks one of two listeners of ours for each TCP connection to
// 127.0.0.0/8 or ::1, whatever its port; the address that the client dialed
// is the local address of the accepted socket. Other packets are not affected.
// Program, map and link are unnamed descriptors of this process: the kernel
// removes them with it, even after SIGKILL, so nothing has to be recorded or
// cleaned up.
//
// Costs and limits:
//
//   - While a Forwarder is open, a host process that listens on the namespace's
//     loopback cannot be reached there, unless its address is Exempt: the kernel
//     runs the program before it searches its own table, and such a program
//     cannot look into that table (the lookup helpers are not among those that
//     sk_lookup programs may call, net/core/filter.c, sk_lookup_func_proto). The
//     only such process of an engine is Docker's DNS resolver at 127.0.0.11. The
//     namespace's other addresses are not affected.
//   - The kernel finishes the handshake before the guest is dialed. A connection
//     that the guest refuses is therefore established and then reset.
//   - Its sockets keep the namespace alive until Close.
//   - UDP is not forwarded: port-forward has none.
//
// All that a guest can do is answer host processes that connect to it, slowly or
// not at all. The number of connections, the memory of each and the time to
// establish each are bounded. A guest that accepts connections and never reads
// uses up its own pod's limit, until Close.
package forward
