// Package rootfs builds a container's file systems on the calling thread, which
// has its own mount namespace, and makes them that namespace's root:
//
//	Open ──> Mount ──> Enter ──> Finish ──> Close
//	  │        │         │         └ read-only and masked paths, sysctls
//	  │        │         └ pivot_root, working directory
//	  │        └ mounts, device nodes
//	  └ propagation, the root as a mount
//
// What the container sees is what runc's libcontainer makes: the order, types,
// options and propagation of its mounts, its device nodes and links.
// [Unsupported] reports what this package leaves to libcontainer.
//
// The root file system may be hostile: it may have a link at any place, and
// another container may change it meanwhile. Every path in it is therefore
// resolved by the kernel below the root's descriptor (openat2(2),
// RESOLVE_IN_ROOT), and a mount is placed onto the descriptor that came from it.
//
// The process itself is not this package's: its namespaces, stdio and
// credentials, and the mounts that only it can make ([Inner]).
//
// It needs Linux 5.12 (mount_setattr).
package rootfs
