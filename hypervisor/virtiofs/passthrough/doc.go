// Package passthrough serves a tree of the host's files to a guest's FUSE
// client: it answers requests (wire.Request) with the system calls that they
// stand for.
//
// What the guest knows are numbers: of nodes, which it looked up and has not
// forgotten, and of handles, which it has opened. What it says beyond them is
// one component of a path at a time, checked by wire.Name. So:
//
//	guest's number -> node (parent, name, identity) -> O_PATH descriptor -> call
//
// A node is found again by its name beneath its parent, with openat2(2) without
// links, and only if it is still the same file. Descriptors of nodes are kept
// while there is room (slots.go); a node without one costs some 190 bytes, so
// that a guest may know a million files. Devices, FIFOs and sockets are never
// opened but with O_PATH.
//
// Each mount in the share is its own tree (tree.go), announced to the
// guest as a submount, with its own cache policy. A tree whose mount goes away
// is dropped: its descriptors are closed and its nodes are stale. A mount inside a
// volume is the host's to unmount, and held no longer than it is used (lent.go).
//
// FS is used by threads that contain.Enter has shut in, each with a Thread.
// Locks: table.mu, slots' and handles' are taken for a few instructions, never
// across a system call. tree.rename is held across one, and blocks none but
// those of its own tree.
package passthrough
