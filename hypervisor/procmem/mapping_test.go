package procmem

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/internal/ownthread"
)

// What the process has changed is given back to the host and put back, and the
// process does not notice, whatever its threads wait for.
func TestImageOfPrivateMemory(t *testing.T) {
	p := start(t)
	m := p.mapping(t)
	content := uint64(0)
	for i := range pages {
		if _, ok := changed(i); ok {
			content += pageSize
		}
	}
	used := func(want uint64) {
		t.Helper()
		if got, err := m.Used(); err != nil || got != want {
			t.Errorf("%d bytes in use, %v, want %d", got, err, want)
		}
	}
	for range 10 {
		var image bytes.Buffer
		key := memfile.Key{1}
		used(content)
		stored, err := memfile.StoreImage(t.Context(), &image, key, []memfile.Memory{m}, 1<<30)
		must(t, err)
		if stored.Memory != content {
			t.Errorf("%d bytes in the image, want %d", stored.Memory, content)
		}
		p.is(t, "changed")
		must(t, m.Discard(t.Context()))
		used(0)
		p.is(t, "original")
		used(0)
		must(t, memfile.RestoreImage(t.Context(), &image, key, []memfile.Memory{m}))
		p.is(t, "changed")
	}
}

// Memory is given back piece by piece, each of which takes the kernel a bounded time.
// Pieces without a change are left alone.
func TestDiscardInPieces(t *testing.T) {
	p := start(t)
	m := p.mapping(t)
	const size = 64 * pageSize
	pieces, err := m.changedPieces(size)
	must(t, err)
	if len(pieces) != (pages+63)/64 {
		t.Errorf("%d pieces for %d pages", len(pieces), pages)
	}
	next := uint64(0)
	for _, one := range pieces {
		if one.at != next || one.size > size {
			t.Errorf("a piece of %d bytes at %d, want at most %d at %d", one.size, one.at, size, next)
		}
		next = one.at + one.size
	}
	if next != m.size {
		t.Errorf("pieces up to %d of %d", next, m.size)
	}
	for _, one := range pieces[1:] {
		must(t, m.discard(one))
	}
	left, err := m.changedPieces(size)
	must(t, err)
	if len(left) != 1 || left[0] != pieces[0] {
		t.Errorf("changed are %v, want %v", left, pieces[:1])
	}
	must(t, m.Discard(t.Context()))
	p.is(t, "original")
}

// Each thread that waits makes the call, and then waits as before.
func TestEveryThreadGoesOn(t *testing.T) {
	p := start(t)
	calls := 0
	done := make(chan struct{})
	ownthread.Go(func() {
		defer close(done)
		for range 50 {
			threads, err := waiting(p.Process.Pid)
			if err != nil {
				t.Error(err)
			}
			for _, tid := range threads {
				ret, err := callIn(p.Process.Pid, tid, time.Now().Add(traceTime), unix.SYS_GETPID, 0, 0, 0)
				switch {
				case errors.Is(err, errNoCall): // it ran
				case err != nil || ret != int64(p.Process.Pid):
					t.Errorf("thread %d: process %d, %v, want process %d", tid, ret, err, p.Process.Pid)
				default:
					calls++
				}
			}
			if got, err := p.ask("changed"); err != nil || got != "ok" {
				t.Errorf("the process has a fault: %s, %v", got, err)
				return
			}
		}
	})
	<-done
	t.Logf("%d calls", calls)
	if calls < 200 {
		t.Errorf("only %d calls", calls)
	}
}

// Blocks are not larger than the buffer, and begin and end with pages.
func TestBlocksArePages(t *testing.T) {
	m := start(t).mapping(t)
	total := 0
	err := m.EachBlock(make([]byte, pageSize+1), func(block []byte, at int64) error {
		if len(block) != pageSize || at%pageSize != 0 {
			t.Fatalf("a block of %d bytes at %d", len(block), at)
		}
		if want, ok := changed(int(at / pageSize)); !ok || !bytes.Equal(block, want) {
			t.Fatalf("page %d is %x..., changed: %v", at/pageSize, block[:4], ok)
		}
		total += len(block)
		return nil
	})
	if used, usedErr := m.Used(); err != nil || usedErr != nil || uint64(total) != used {
		t.Errorf("blocks of %d bytes, %v, want %d, %v", total, err, used, usedErr)
	}
}

// A process that is stopped, that has one thread, or that has ended, makes Discard
// fail, and is otherwise left as it is.
func TestDiscardFails(t *testing.T) {
	p := start(t)
	m := p.mapping(t)
	must(t, p.Process.Signal(unix.SIGSTOP))
	p.awaitStop(t)
	failsWith(t, m.Discard(t.Context()), "discard private memory at 0x", "the process is stopped (SIGSTOP)")
	must(t, p.Process.Signal(unix.SIGCONT))
	p.is(t, "changed")
	must(t, m.Discard(t.Context()))
	must(t, p.Process.Signal(unix.SIGSTOP))
	p.awaitStop(t)
	if err := m.Discard(t.Context()); err != nil {
		t.Errorf("nothing was changed since the last time: %v", err)
	}
	must(t, p.Process.Signal(unix.SIGCONT))
	p.is(t, "original")

	err := madvise(singleThreaded(t), 0, pageSize, unix.MADV_DONTNEED)
	failsWith(t, err, "no thread except the first can make the call: it has only one")

	// A thread of another process is let go.
	threads, err := waiting(p.Process.Pid)
	must(t, err)
	done := make(chan struct{})
	ownthread.Go(func() {
		defer close(done)
		_, err := callIn(os.Getpid(), threads[0], time.Now().Add(traceTime), unix.SYS_GETPID, 0, 0, 0)
		failsWith(t, err, "it is not the process's")
	})
	<-done
	p.is(t, "original")

	must(t, p.Process.Kill())
	_ = p.Wait()
	if err := m.Discard(t.Context()); err == nil {
		t.Error("the memory of a process that has ended was discarded")
	}
	if err := m.PutBlock(original(0), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("write to the memory of a process that has ended: %v", err)
	}
}

// The kernel refuses advice for what is not mapped: the error is its.
func TestAdviceForNothing(t *testing.T) {
	p := start(t)
	if err := madvise(p.Process.Pid, 1<<46, pageSize, unix.MADV_DONTNEED); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v", err)
	}
	p.is(t, "changed")
}

func TestMappings(t *testing.T) {
	p := start(t)
	other, err := os.Open(os.DevNull)
	must(t, err)
	defer other.Close()
	id, err := IDOf(other)
	must(t, err)
	_, err = Mappings(p, id)
	failsWith(t, err, "it has not mapped the file")

	file := FileID{0, 1, 42}
	const line = "7f0000000000-7f0000002000 rw-p 00000000 00:01 42   /memfd:memory (deleted)\n"
	all, err := parseMaps(strings.NewReader("00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/x\n"+
		strings.Replace(line, "rw-p", "rw-s", 1)+strings.Replace(line, "42", "43", 1)+line), file)
	if err != nil || len(all) != 1 || all[0].start != 0x7f0000000000 || all[0].size != 0x2000 {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = parseMaps(strings.NewReader(strings.Repeat(line, maxMappings+1)), file)
	failsWith(t, err, "more than 16 times")
	_, err = parseMaps(strings.NewReader("nonsense\n"), file)
	failsWith(t, err, `line "nonsense"`)
}

// FuzzParseMaps reads the list of a process's mappings, whose paths that process names.
func FuzzParseMaps(f *testing.F) {
	f.Add("7f0000000000-7f0000001000 rw-p 00000000 00:01 7   /memfd:x (deleted)\n")
	f.Add("7f0000000000-7f0000001000 rw-p 00000000 00:01 7 /a\\0127f00-7f10 rw-p 0 00:01 7\n")
	f.Fuzz(func(t *testing.T, maps string) {
		all, err := parseMaps(strings.NewReader(maps), FileID{0, 1, 7})
		if err == nil && (len(all) == 0 || len(all) > maxMappings) {
			t.Errorf("%d mappings", len(all))
		}
	})
}
