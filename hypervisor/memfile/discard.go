package memfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Discard gives a file's memory back to the host: afterwards it is one hole of
// the same size. Every process that has mapped the file reads zeros from then on.
func Discard(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("discard memory: %w", err)
	}
	if info.Size() == 0 {
		return nil // fallocate refuses a length of 0
	}
	// Part of a page is set to zero and not freed, so the last page is taken whole.
	length := (info.Size() + pageSize - 1) / pageSize * pageSize
	err = error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, length)
	}
	if err != nil {
		return fmt.Errorf("discard memory: punch a hole of %d bytes into %s: %w", length, file.Name(), os.NewSyscallError("fallocate", err))
	}
	return nil
}
