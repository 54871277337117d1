// Package rootfs builds a container's file systems on the calling thread, which
// has its own mount namespace, and makes them that namespace's root:
//
//	Open ──> Mount ──> Enter ──> Finish ──> Close
//	  │        │         │         └ read-only and masked paths, sysctls
//	  │        │         └ pivot_root, working directory
//	  │        └ mounts, device nodes
//	  └ propagation, the root as a mount
//
// The result is the same as that of runc's libcontainer: order, types, options and
// propagation of mounts, device nodes and links. [Unsupported] reports specs that
// this package leaves to libcontainer.
//
// The root file system may be hostile: it may have a link at any place, and
// another container may change it meanwhile. Every path in it is therefore
// resolved by the kernel below the root's descriptor (openat2(2),
// RESOLVE_IN_ROOT), and a mount is placed onto the descriptor that came from it.
//
// The package does not set up the process: its namespaces, stdio and
// credentials, and the mounts that only the process can make ([Inner]).
//
// It needs Linux 5.12 (mount_setattr).
package rootfs
