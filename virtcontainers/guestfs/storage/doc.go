// Package storage brings the host's files into a pod's guest.
//
// A Share is a tree of the host's that this process or a virtiofsd serves to the
// guest over virtio-fs. The root file systems and bind mounts of the pod's
// containers are added and removed with the containers:
//
//	/<container>/rootfs      the container's root file system
//	/<container>/mounts/<n>  the source of its nth mount
//	/sandbox-mounts/<name>   what is bound for the pod as a whole
//	/pod-volumes/<n>         a directory that the pod's containers mount
//	/outputs/<n>             where large blocks of an output pass (outputs.go)
//
// It is in its own mount namespace, which holds nothing else (space.go):
//
//	host's mount namespace          the share's
//	  source ──open_tree──> clone ──move_mount──> /<container>/mounts/<n>
//	  virtiofsd, its root directory being ──────> /share/<sandbox>
//
// What the guest may make in a bind that gives rights on the host follows from the
// containers that have it (special.go).
//
// None of it is in the host's mount table, and all of it ends with the shim and
// virtiofsd.
//
// A Rootfs has the mounts that an engine passes for a bundle's rootfs.
package storage
