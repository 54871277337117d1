// Package qmp is a client for QEMU's QMP: commands with deadlines, typed
// errors, file descriptors, and events that are never silently lost.
//
// It uses go-qemu's types (its Monitor interface, Command, Event and Version)
// and is the only package that imports go-qemu; the implementation is our own.
// It does not know what a command means to a virtual machine.
//
//	New          Handshake               Disconnect, end of file,
//	---> [raw] -------------> [ready]    protocol violation
//	       |                     |
//	       +---------------------+-----------------> [closed]
//
// In [closed], which is final, every waiting and later command fails with
// ErrClosed, and the event channels are closed once their queues are empty.
//
// One goroutine reads the connection. It never blocks on a receiver: replies go
// to their command by id, events into the queues of their subscribers.
package qmp
