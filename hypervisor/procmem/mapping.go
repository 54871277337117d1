package procmem

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
)

// pageSize is the unit in which a mapping is the process's own or the file's.
const pageSize = 4096

// maxMappings bounds how many mappings of one file are taken. QEMU makes one, which
// the kernel may split where parts of it were given different advice.
const maxMappings = 16

// Owner is a process.
type Owner interface {
	// Hold returns its process id, which is no other process's until Release; ok is
	// false, and Release must not be called, if the process has ended.
	Hold() (pid int, ok bool)
	Release()
}

// Mapping is one private mapping of a file. Its content, as memfile has it, is the
// pages that the process has changed.
type Mapping struct {
	owner Owner
	start uint64
	size  uint64
	// pagemap is the process's; it stays that of the memory that the process had
	// when it was opened.
	pagemap *os.File
}

var _ memfile.Memory = (*Mapping)(nil)

// FileID is a file, as the kernel shows it in the list of mappings.
type FileID struct {
	major, minor uint32
	inode        uint64
}

// IDOf returns the id of a file.
func IDOf(file *os.File) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return FileID{}, os.NewSyscallError("fstat", err)
	}
	return FileID{unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino}, nil
}

// Mappings returns the owner's private, writable mappings of a file, in the order
// of their addresses. The caller closes them. It fails if there are none.
func Mappings(owner Owner, file FileID) ([]*Mapping, error) {
	pid, ok := owner.Hold()
	if !ok {
		return nil, fmt.Errorf("find private memory: %w", unix.ESRCH)
	}
	defer owner.Release()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("find private memory: %w", err)
	}
	defer maps.Close()
	all, err := parseMaps(maps, file)
	if err != nil {
		return nil, fmt.Errorf("find private memory of process %d: %w", pid, err)
	}
	for _, m := range all {
		m.owner = owner
		if m.pagemap, err = os.Open(fmt.Sprintf("/proc/%d/pagemap", pid)); err != nil {
			return nil, errors.Join(fmt.Errorf("find private memory: %w", err), closeAll(all))
		}
	}
	return all, nil
}

// parseMaps reads the list of mappings (proc_pid_maps(5)): "start-end rw-p offset
// major:minor inode path", numbers but the inode in hexadecimal.
func parseMaps(maps io.Reader, file FileID) ([]*Mapping, error) {
	var all []*Mapping
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var start, end, offset, inode uint64
		var major, minor uint32
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %x:%x %d", &start, &end, &mode, &offset, &major, &minor, &inode); err != nil {
			return nil, fmt.Errorf("line %.100q: %w", lines.Text(), err)
		}
		if (FileID{major, minor, inode}) != file || !strings.HasPrefix(mode, "rw") || !strings.HasSuffix(mode, "p") {
			continue
		}
		if len(all) == maxMappings {
			return nil, fmt.Errorf("it has the file mapped more than %d times", maxMappings)
		}
		all = append(all, &Mapping{start: start, size: end - start})
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, errors.New("it has not mapped the file")
	}
	return all, lines.Err()
}

func closeAll(all []*Mapping) error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Name implements memfile.Memory.
func (m *Mapping) Name() string { return fmt.Sprintf("private memory at %#x", m.start) }

// Size implements memfile.Memory.
func (m *Mapping) Size() (uint64, error) { return m.size, nil }

// Close implements memfile.Memory.
func (m *Mapping) Close() error {
	if m.pagemap == nil {
		return nil
	}
	return m.pagemap.Close()
}

const (
	// maxPiece bounds how much of a mapping is discarded by one call, in which a thread
	// of the process cannot be let go: two GiB of changed pages have taken a busy host
	// 0.6 s, and a process whose cgroup bounds its CPU time takes many times as long.
	maxPiece = 8 << 20
	// discardTime bounds all calls but the last together, with a second more for each
	// discardRate bytes.
	discardTime = 30 * time.Second
	discardRate = 64 << 20
)

// piece is a part of a mapping.
type piece struct{ at, size uint64 }

// changedPieces returns the pieces of a mapping that have changed pages.
func (m *Mapping) changedPieces(size uint64) (all []piece, err error) {
	err = m.eachRun(func(at, length uint64) error {
		for from := at / size * size; from < at+length; from += size {
			if len(all) == 0 || all[len(all)-1].at != from {
				all = append(all, piece{from, min(size, m.size-from)})
			}
		}
		return nil
	})
	return all, err
}

// Discard implements memfile.Memory: the process sees the file afterwards. One that
// has changed nothing is left alone: it may be traced by another program. After an
// error a part may be discarded.
func (m *Mapping) Discard(ctx context.Context) error {
	pieces, err := m.changedPieces(maxPiece)
	if err != nil {
		return fmt.Errorf("discard %s: %w", m.Name(), err)
	}
	limit := discardTime + time.Duration(m.size/discardRate)*time.Second
	for until := time.Now().Add(limit); len(pieces) > 0; pieces = pieces[1:] {
		if ctx.Err() != nil {
			return fmt.Errorf("discard %s: %w", m.Name(), context.Cause(ctx))
		}
		if time.Now().After(until) {
			return fmt.Errorf("discard %s: %d pieces are left after %v: %w", m.Name(), len(pieces), limit, os.ErrDeadlineExceeded)
		}
		if err := m.discard(pieces[0]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mapping) discard(p piece) error {
	pid, ok := m.owner.Hold()
	if !ok {
		return fmt.Errorf("discard %s: %w", m.Name(), unix.ESRCH)
	}
	defer m.owner.Release()
	if err := madvise(pid, m.start+p.at, p.size, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("discard %s of process %d: %w", m.Name(), pid, err)
	}
	return nil
}
