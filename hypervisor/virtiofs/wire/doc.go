// Package wire is FUSE's wire format as a virtio-fs device gets it: a request
// in a chain's readable buffers, and the room for its reply in the writable
// ones (virtio 1.2, section 5.11.6; Linux, include/uapi/linux/fuse.h). The
// structures are go-fuse's.
//
// The sizes in a request are not trusted. Everything but the data of a write is
// copied once from guest memory, at most MaxArgs bytes, before it is parsed, so
// that it cannot change; a reply is bounded by its chain. Data is not copied:
// the kernel reads files into the guest's memory and writes them from it.
package wire
