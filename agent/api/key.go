package api

// With the host kernel's vhost-vsock every process of the host can connect to the
// agent's ports. A key tells the agent which connections are those of the machine's
// owner:
//
//   - A connection to PortKey brings the key, KeyBytes random bytes. It comes from
//     a port of the host below ReservedPorts, which a process without privileges
//     cannot use. The agent answers with one byte, KeyTaken or KeyRefused, and
//     closes.
//   - Every connection to another port begins with the key. The agent closes one
//     that does not.
//
// The agent keeps the first key as long as a connection to PortRPC that began with
// it is open. These all end when the machine loses its vsock device, as it does
// before it is saved: a machine that was restored takes the key of its new owner.
const (
	// KeyBytes is the length of a key.
	KeyBytes = 32
	// KeyTaken means that the agent has this key.
	KeyTaken = 1
	// KeyRefused means that the agent has another key.
	KeyRefused = 2
	// ReservedPorts is the lowest port of the host that needs no privilege
	// (LAST_RESERVED_PORT in Linux's af_vsock.c).
	ReservedPorts = 1024
)

// Key is what the host's connections begin with.
type Key [KeyBytes]byte
