package qmp

import goqmp "github.com/digitalocean/go-qemu/qmp"

// go-qemu's types, so that users of this package need not import it.
type (
	// Command is a command and its arguments.
	Command = goqmp.Command
	// Event is an asynchronous message from QEMU.
	Event = goqmp.Event
	// Version is QEMU's version, from its greeting.
	Version = goqmp.Version
)
