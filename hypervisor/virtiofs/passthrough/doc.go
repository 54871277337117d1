// Package passthrough serves a tree of the host's files to a guest's FUSE
// client: it answers requests (wire.Request) by making the corresponding system
// calls.
//
// The guest knows only numbers: of nodes, which it looked up and has not
// forgotten, and of handles, which it has opened. Besides these it sends single
// path components, which wire.Name checks. So:
//
//	guest's number -> node (parent, name, identity) -> O_PATH descriptor -> call
//
// A node is found again by its name beneath its parent, with openat2(2) without
// links, and only if it is still the same file. Nodes keep their descriptors
// while there is room (slots.go). A node without one takes some 190 bytes, so that
// a guest may know a million files. Devices, FIFOs and sockets are only
// opened with O_PATH.
//
// Each mount in the share is its own tree (tree.go), a submount for the guest,
// with its own cache policy. When its mount is removed, a tree is dropped: its
// descriptors are closed and its nodes become stale. Files are closed apart from those of
// other mounts, because a close may hang (closing.go). The host may unmount a mount
// inside a volume, because such a mount is held only while it is used (lent.go). If a
// tree's files have several devices, their inode numbers say which (inode.go).
//
// A mount on a file is a tree, too, but no submount: for the guest the file is in the file
// system around it, which has its inode number (inode.go) and whose sync is its (sync.go).
//
// A proc file system of the host does not show this process to a guest, and gives no
// access to the memory of others (processes.go). What the host's kernel makes when it is
// read is not cached (generated.go). The space of files that the host deletes becomes
// free (deleted.go), and a guest that has removed files to make room has it at once
// (freeing.go).
//
// Requests are carried out as root, or as their sender if its user matters: what it makes
// is its own. What a server refuses to root is done as the sender (sender.go).
//
// Device nodes and file capabilities can be made where the host says so only (special.go).
//
// An open of a file that the host has replaced is stale, but not twice (retry.go).
//
// The guest's nodes and handles can be saved, and loaded into another FS (state.go).
//
// FS is used by threads that contain.Enter has confined, each with a Thread.
// Locks: table.mu, which also guards the slots, and handles.mu, which may be taken
// within it, are held for a few instructions, never across a system call.
// tree.rename is held across one, and blocks only calls of its own tree.
package passthrough
