// Package filesync copies a directory or a file of the host into the guest and
// keeps the copy up to date: for volumes whose programs watch for changes by
// inotify(7), which no shared file system passes on, and for sandboxes without
// a share.
//
//	Start: scan, send all ──> wait ──event──> settle ──> scan ──> compare, send ──┐
//	                            ^───────────────────────────────────────────────┘
//	                            └── Close, the guest or the source is gone ──> (end)
//
// A scan reads the whole tree: names, and stat(2) of each. Its result is used if
// nothing changed meanwhile (settled), or after some tries.
//
// The source's directory is opened once (source.go): what is put in its place later
// is not copied.
//
// Kubernetes changes a volume of files atomically, by renaming a link:
//
//	name -> ..data/name     ..data -> ..2026_11_20     ..2026_11_20/name
//
// The change is atomic in the guest too: directories and files are sent first,
// then links, "..data" before others; removals come last.
//
// A single file may be copied back when the container that wrote to it has ended
// (Back). In the guest a single file is always written in place, even if it is
// replaced on the host, because a container has its inode mounted.
//
// A process uses one inotify instance for everything (watch.go), because root
// has few (fs.inotify.max_user_instances, 128). Without an instance or enough
// watches, the source is polled instead. Changes that another machine makes on
// a network file system are not noticed (inotify(7)).
package filesync
