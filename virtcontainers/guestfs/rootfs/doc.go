// Package rootfs finds out of which disks a container's root file system can
// be made in the guest, from the mounts that an engine hands over.
//
//	ext4 /…/snapshots/7               blockfile, devmapper: one disk
//	ext4 /…/rwlayer.img, rw     ──┐
//	erofs /…/layer.erofs, ro    ──┼─> an overlay of disks, made in the guest
//	erofs /…/layer.erofs, ro    ──┤
//	format/mkdir/overlay …      ──┘
//
// The type of the last one is a template: containerd (2.2 and later) leaves it
// to a runtime that says it can (core/mount/manager; shim/manager says so) to
// fill in where the ones before are mounted, and to make directories in them.
//
//	            Parse                        Storages
//	mounts ───────────────────> Plan ────────────────────> the guest's storages
//	   │ no plan: directories of the host, ...
//	   └──────────────────────> MountHost, for the share
//
// Parse and Storages are pure: they look at no file.
package rootfs
