// Package rootfs finds out of which disks a container's root file system can
// be made in the guest, from the mounts that an engine hands over. It is pure:
// it looks at no file.
//
//	ext4 /…/snapshots/7               blockfile, devmapper: one disk
//	ext4 /…/rwlayer.img, rw     ──┐
//	erofs /…/layer.erofs, ro    ──┼─> an overlay of disks, made in the guest
//	erofs /…/layer.erofs, ro    ──┤
//	format/mkdir/overlay …      ──┘
package rootfs
