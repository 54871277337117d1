package memfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyBlock is how much memory is copied at a time. It stays in the CPU's cache
// while it is read, summed and written.
const copyBlock = 256 << 10

// sumTable is for CRC-32C, for which x86-64 has an instruction.
var sumTable = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum (CRC-32C) of a file's data without its holes: it
// detects damage and truncation, not tampering. The file's offset changes.
func Sum(file *os.File) (uint32, error) {
	sum := uint32(0)
	err := eachBlock(file, make([]byte, copyBlock), func(block []byte, _ int64) error {
		sum = crc32.Update(sum, sumTable, block)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("sum up memory: %w", err)
	}
	return sum, nil
}

// Copy copies from's data to a file of the same size that is all holes. It
// fails if Sum of from is not want. From's offset changes.
func Copy(to, from *os.File, want uint32) error {
	if err := sameSize(to, from); err != nil {
		return fmt.Errorf("copy memory: %w", err)
	}
	sum := uint32(0)
	err := eachBlock(from, make([]byte, copyBlock), func(block []byte, at int64) error {
		sum = crc32.Update(sum, sumTable, block)
		_, err := to.WriteAt(block, at)
		return err
	})
	if err != nil {
		return fmt.Errorf("copy memory: %w", err)
	}
	if sum != want {
		return fmt.Errorf("copy memory: %s is damaged: its checksum is %08x, want %08x", from.Name(), sum, want)
	}
	return nil
}

// memorySeals keep a memfd as it is: no process can write to it, shrink or grow
// it, or undo that.
const memorySeals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Blank returns a memfd of that many bytes, all holes, for Fill. It can be passed
// to other processes before it is filled.
func Blank(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory: %w", os.NewSyscallError("memfd_create", err))
	}
	blank := os.NewFile(uintptr(fd), "memfd:"+name)
	if err := blank.Truncate(size); err != nil {
		return nil, errors.Join(fmt.Errorf("make memory: %w", err), blank.Close())
	}
	return blank, nil
}

// Fill copies from's data to a file of Blank, which cannot be changed any more
// afterwards. It fails if Sum of from is not want, or if any process has a shared
// mapping of the file that it can write to. From's offset changes.
func Fill(blank, from *os.File, want uint32) error {
	if err := Copy(blank, from, want); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(blank.Fd(), unix.F_ADD_SEALS, memorySeals); err != nil {
		return fmt.Errorf("seal memory: %w", os.NewSyscallError("fcntl", err))
	}
	return nil
}

// Sealed reports whether a file is a memfd as Fill leaves it.
func Sealed(file *os.File) bool {
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&memorySeals == memorySeals
}

func sameSize(a, b *os.File) error {
	one, err := a.Stat()
	if err != nil {
		return err
	}
	other, err := b.Stat()
	if err != nil {
		return err
	}
	if one.Size() != other.Size() {
		return fmt.Errorf("%s has %d bytes, the machine's memory %d", b.Name(), other.Size(), one.Size())
	}
	return nil
}

// eachBlock calls do for all data of a file outside of holes, in order. It reads
// into buf, so a block is valid only during the call.
//
// A machine's process shares the file's offset. It does not matter: the offset
// is not read, only what each Seek returns.
func eachBlock(file *os.File, buf []byte, do func(block []byte, at int64) error) error {
	for end := int64(0); ; {
		start, err := file.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // no data beyond that
		}
		if err != nil {
			return err
		}
		if end, err = file.Seek(start, unix.SEEK_HOLE); err != nil {
			return err
		}
		for at := start; at < end; {
			n, err := file.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
			if n == 0 && err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
			if err := do(buf[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
	}
}
