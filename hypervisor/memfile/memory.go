package memfile

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Memory is a part of a machine's memory of which images are made. Its content is
// what the machine has put there: in between it reads as zeros (a file's holes),
// or as what the machine began with.
type Memory interface {
	// Name is for errors.
	Name() string
	// Size returns how many bytes the machine sees.
	Size() (uint64, error)
	// Used returns how many bytes of the host's memory the content takes.
	Used() (uint64, error)
	// EachBlock calls do for all content, in order. It reads into buf, so a block
	// is valid only during the call. Blocks begin at a page's start.
	EachBlock(buf []byte, do func(block []byte, at int64) error) error
	// PutBlock writes back what EachBlock has read.
	PutBlock(block []byte, at int64) error
	// Discard gives the content back to the host. If ctx ends first it fails, and a part
	// may be discarded.
	Discard(ctx context.Context) error
	Close() error
}

// File is a file that is memory: its holes are what is not content.
type File struct{ *os.File }

var _ Memory = File{}

// Files returns the files as memory.
func Files(files ...*os.File) []Memory {
	var all []Memory
	for _, f := range files {
		all = append(all, File{f})
	}
	return all
}

// Size implements Memory.
func (f File) Size() (uint64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return uint64(info.Size()), nil
}

// Used implements Memory.
func (f File) Used() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return uint64(st.Blocks) * 512, nil
}

// EachBlock implements Memory. The file's offset changes.
func (f File) EachBlock(buf []byte, do func(block []byte, at int64) error) error {
	return eachBlock(f.File, buf, do)
}

// PutBlock implements Memory. Pages of zeros stay holes.
func (f File) PutBlock(block []byte, at int64) error { return writeBlock(f.File, block, at) }

// Discard implements Memory: the file is one hole of the same size afterwards.
// Every process that has mapped it reads zeros from then on.
func (f File) Discard(context.Context) error { return discard(f.File) }
