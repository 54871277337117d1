// Package filesync copies a directory or a file of the host into the guest and
// repeats there what changes on the host: for volumes whose programs want to
// be told of changes by inotify(7), which no shared file system brings, and for
// sandboxes without one.
//
//	Start: look, send all ──> await ──event──> settle ──> look ──> compare, send ─┐
//	                            ^───────────────────────────────────────────────┘
//	                            └── Close, the guest or the source is gone ──> (end)
//
// A look is the whole tree: names, and what stat(2) tells of each. It counts
// when nothing has happened while it was taken (settled); a source that is
// never quiet is taken as it is after some tries.
//
// Kubernetes changes a volume of files at once, by renaming a link:
//
//	name -> ..data/name     ..data -> ..2026_11_20     ..2026_11_20/name
//
// It is as much at once in the guest: directories and files are sent first,
// then links, "..data" before others, and what is gone is removed last.
//
// A single file may be brought back, when the container that wrote into it has
// ended (Back). It is written in place in the guest, whatever is done on the host:
// a container has its inode mounted.
//
// One inotify instance is all that a process uses (watch.go), because root has
// few (fs.inotify.max_user_instances, 128). Where there is none, or where there
// are too few watches, the source is looked at from time to time instead. What
// another machine changes on a network file system is not noticed (inotify(7)).
package filesync
