// Package qmptest plays QEMU's side of a QMP connection in tests: word by
// word (Server.Send, Server.Next) or with a handler (Server.Serve). It knows
// nothing of the client in package qmp.
package qmptest
