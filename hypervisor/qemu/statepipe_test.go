package qemu

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// mover is a QEMU that refuses a state in a regular file, as QEMU 11 does, and moves
// the first len(state) bytes.
type mover struct {
	t     *testing.T
	state string
	end   *os.File
	fault error // why the last move failed
}

func (m *mover) answer(_ *qmptest.Server, r qmptest.Request) any {
	switch r.Execute {
	case "getfd":
		fd, err := unix.Dup(int(r.Files[0].Fd()))
		if err != nil {
			m.t.Error(err)
		}
		m.end = os.NewFile(uintptr(fd), "state")
		if mode, _, err := statFile(m.end); err != nil || mode&unix.S_IFMT != unix.S_IFIFO {
			m.t.Errorf("QEMU got a file of mode %#o, %v", mode, err)
		}
	case string(save):
		_, m.fault = io.WriteString(m.end, m.state)
	case string(load):
		got := make([]byte, len(m.state))
		if _, m.fault = io.ReadFull(m.end, got); m.fault == nil && string(got) != m.state {
			m.fault = errors.New("another state")
		}
	case "query-migrate":
		_ = m.end.Close()
		if m.fault != nil {
			return status("failed")
		}
		return status("completed")
	case "closefd":
		return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "File descriptor named 'state' not found"}
	}
	return yes
}

// A state comes from a file and goes to one, although QEMU gets none. It is longer
// than a pipe holds.
func TestStateOfFile(t *testing.T) {
	text := strings.Repeat("a machine", 100_000)
	path := filepath.Join(t.TempDir(), "state")
	move := func(d direction, f *os.File, err error) error {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return scriptAnswers(t, (&mover{t: t, state: text}).answer).migrate(testContext(t), d, f, shared)
	}
	f, err := os.Create(path)
	if err := move(save, f, err); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("saved %d bytes, %v, want %d", len(got), err, len(text))
	}
	f, err = os.Open(path)
	if err := move(load, f, err); err != nil {
		t.Error(err)
	}
	// QEMU does not read what follows a state.
	if err := os.WriteFile(path, []byte(text+text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err = os.Open(path)
	if err := move(load, f, err); err != nil {
		t.Errorf("with more behind it: %v", err)
	}
	f, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err := move(save, f, err); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without room: %v", err)
	}
	if err := os.WriteFile(path, []byte(text[:1000]), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err = os.Open(path)
	if err := move(load, f, err); err == nil {
		t.Error("part of a state is loaded")
	}
}
