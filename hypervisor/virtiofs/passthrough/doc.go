// Package passthrough serves a tree of the host's files to a guest's FUSE
// client: it answers requests (wire.Request) by making the corresponding system
// calls.
//
// The guest knows only numbers: of nodes, which it looked up and has not
// forgotten, and of handles, which it has opened. Apart from these it sends one
// path component at a time, checked by wire.Name. So:
//
//	guest's number -> node (parent, name, identity) -> O_PATH descriptor -> call
//
// A node is found again by its name beneath its parent, with openat2(2) without
// links, and only if it is still the same file. Descriptors of nodes are kept
// while there is room (slots.go); a node without one costs some 190 bytes, so
// that a guest may know a million files. Devices, FIFOs and sockets are only
// opened with O_PATH.
//
// Each mount in the share is its own tree (tree.go), announced to the
// guest as a submount, with its own cache policy. A tree whose mount is removed
// is dropped: its descriptors are closed and its nodes are stale. The host may
// unmount a mount inside a volume, which is held only while it is used
// (lent.go).
//
// Below a proc file system of the host a guest does not find the process that serves
// it (ownprocess.go).
//
// What the guest knows can be saved, and loaded into another FS (state.go).
//
// FS is used by threads that contain.Enter has confined, each with a Thread.
// Locks: table.mu, which also guards the slots, and handles.mu, which may be taken
// within it, are held for a few instructions, never across a system call.
// tree.rename is held across one, and blocks only calls of its own tree.
package passthrough
