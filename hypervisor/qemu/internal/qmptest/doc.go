// Package qmptest is QEMU's side of a QMP connection for tests: message by
// message (Server.Send, Server.Next) or with a handler (Server.Serve). It knows
// nothing of the client in package qmp.
package qmptest
