// Package initramfs writes an initial RAM file system: a cpio archive in the
// "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst)
// that the kernel unpacks into its first root.
//
// The same tree gives the same bytes on every host: entries are sorted, owned by
// root, have time 0 and are numbered in order.
package initramfs
