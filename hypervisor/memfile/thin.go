package memfile

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Thin gives the pages of zeros in a file back to the host, and returns how many
// bytes that are: they become holes, which read the same. Nothing may write to
// the file meanwhile. Ctx is checked for each block.
func Thin(ctx context.Context, file *os.File) (freed uint64, err error) {
	err = eachBlock(file, make([]byte, imageBlock), func(block []byte, at int64) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := thinBlock(file, block, at)
		freed += n
		return err
	})
	if err != nil {
		return freed, fmt.Errorf("give back zeros of memory: %w", err)
	}
	return freed, nil
}

func thinBlock(file *os.File, block []byte, at int64) (freed uint64, err error) {
	for len(block) > 0 {
		zeros := leadingPages(block, true)
		if zeros > 0 {
			if err := punch(file, at, int64(zeros)); err != nil {
				return freed, err
			}
			freed += uint64(zeros)
		}
		data := leadingPages(block[zeros:], false)
		block, at = block[zeros+data:], at+int64(zeros+data)
	}
	return freed, nil
}

// punch makes a part of a file a hole; its size stays.
func punch(file *os.File, at, length int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("punch a hole of %d bytes into %s: %w", length, file.Name(), os.NewSyscallError("fallocate", err))
		}
	}
}
