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
//	                         <---------- bytes, half-closes ---------->
//
// The program (BPF_PROG_TYPE_SK_LOOKUP, since Linux 5.9) is attached to the
// namespace and runs when the kernel looks for the listener of a new
// connection. It picks one of two listeners of ours for each TCP connection to
// 127.0.0.0/8 or ::1, whatever its port; the address that the client asked for
// is the local address of the accepted socket. All other packets pass it
// untouched. Program, map and link are descriptors of this process without a
// name: the kernel takes them away with it, also after SIGKILL, and nothing
// has to be recorded or cleaned up.
//
// What it costs, and does not do:
//
//   - While a Forwarder is open, a process of the host's that listens on the
//     namespace's loopback is not reached there, unless its address is Exempt:
//     the kernel asks the program before its own table, and such a program
//     cannot look into that table (the lookup helpers are not among those that
//     sk_lookup programs may call, net/core/filter.c, sk_lookup_func_proto). The
//     one such process of an engine's is Docker's DNS resolver at 127.0.0.11. On
//     the namespace's other addresses it is reached as ever.
//   - A connection is accepted before the guest is asked, because the kernel
//     finishes the handshake. One that the guest refuses is therefore reset
//     after it was made, and not refused.
//   - Its sockets keep the namespace alive until Close.
//   - UDP is not forwarded: port-forward has none.
//
// What a guest can do with it is to answer, slowly or not at all, whoever on
// the host connected to it. The number of connections, the memory of each and
// the time in which each must be made are bounded. A guest that takes
// connections and never reads them uses up its own pod's number, until Close.
package forward
