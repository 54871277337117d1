// Package qmp talks to QEMU's monitor (QMP): commands with deadlines, typed
// errors, file descriptors, and events that are never lost in silence.
//
// It speaks go-qemu's vocabulary (its Monitor interface, Command, Event and
// Version) and is the only package that imports go-qemu; the monitor itself
// is our own. What a command means to a virtual machine is not known here.
//
//	New          Handshake               Disconnect, end of file,
//	---> [raw] -------------> [ready]    protocol violation
//	       |                     |
//	       +---------------------+-----------------> [closed]
//
// In [closed], which is final, every waiting and later command fails with
// ErrClosed, and the event channels are closed once their queues are empty.
//
// One goroutine reads the connection. It never waits for anyone: replies go
// to their command by id, events into the queues of their subscribers.
package qmp
