// Package rootfs determines from which disks the guest can make a container's
// root file system, given the mounts that an engine passes.
//
//	ext4 /…/snapshots/7               blockfile, devmapper: one disk
//	ext4 /…/rwlayer.img, rw     ──┐
//	erofs /…/layer.erofs, ro    ──┼─> an overlay of disks, made in the guest
//	erofs /…/layer.erofs, ro    ──┤
//	format/mkdir/overlay …      ──┘
//
// The type of the last one is a template: a runtime that declares it can
// (core/mount/manager; shim/manager does) gets templates from containerd (2.2
// and later), fills in where the earlier mounts are, and makes directories in
// them.
//
//	            Parse                        Storages
//	mounts ───────────────────> Plan ────────────────────> the guest's storages
//	   │ no plan: directories of the host, ...
//	   └──────────────────────> MountHost, for the share
//
// Parse and Storages are pure: they access no file.
package rootfs
