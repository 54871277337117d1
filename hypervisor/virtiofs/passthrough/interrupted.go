package passthrough

import (
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// Go's runtime sends its threads signals, and some file systems of the host (FUSE, CIFS)
// answer a call that meets one with EINTR, although it is to be restarted; package os
// repeats such calls (its ignoringEINTR). A program in the guest that was sent no signal
// does not expect EINTR of a file.

// maxInterrupted bounds how often a request is repeated: a file system may always fail so.
const maxInterrupted = 100

// uninterrupted does an operation, and repeats one that was interrupted. Its errors leave no
// part of an answer that counts.
func uninterrupted(r *wire.Request, do func() unix.Errno) unix.Errno {
	errno := do()
	for n := 0; errno == unix.EINTR && isRepeatable(r.Op()) && n < maxInterrupted; n++ {
		r.Cut(0)
		errno = do()
	}
	return errno
}

// isRepeatable reports whether an operation may be carried out twice: one that makes,
// moves or removes a name may have done so before it was interrupted.
func isRepeatable(op wire.Op) bool {
	switch op {
	case wire.Lookup, wire.Getattr, wire.Statx, wire.Setattr, wire.Statfs, wire.Syncfs, wire.Readlink, wire.Open, wire.Read, wire.Write,
		wire.Fsync, wire.Fsyncdir, wire.Fallocate, wire.Lseek, wire.Opendir, wire.Readdir, wire.Readdirplus, wire.Getxattr, wire.Listxattr:
		return true
	}
	return false
}
