// Package storage brings the host's files into a pod's guest.
//
// A Share is one directory of the host, served to the guest by one virtiofsd
// over virtio-fs. The root file systems and bind mounts of the pod's
// containers appear in it as they come and go:
//
//	<share>/<container>/rootfs      the container's root file system
//	<share>/<container>/mounts/<n>  the source of its nth mount
//
// The share is a mount of its own, private, so that nothing mounted below it
// is seen elsewhere and one lazy unmount takes the whole tree away, whoever
// does it (a shim that was killed leaves that to `delete`).
//
// A Rootfs is what an engine hands over to be mounted at a bundle's rootfs.
package storage
