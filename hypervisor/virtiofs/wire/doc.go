// Package wire is FUSE's wire format as a virtio-fs device gets it: a request
// in a chain's readable buffers, and the room for its reply in the writable
// ones (virtio 1.2, section 5.11.6; Linux, include/uapi/linux/fuse.h). The
// structures are go-fuse's.
//
// Nothing that a request says of its own size is believed. All but the data of
// a write is copied out of guest memory once, at most MaxArgs bytes, before any
// of it is looked at, so that it holds still; a reply is bounded by its
// chain. Data is not copied: a file is read into the guest's memory and written
// from it by the kernel.
package wire
