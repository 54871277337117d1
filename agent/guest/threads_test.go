package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel allows as many threads as if it had had the memory at its start, and
// never fewer than before.
func TestThreadsFollowMemory(t *testing.T) {
	for _, test := range []struct{ before, after string }{
		{"2116", "3584"}, // 384 MiB
		{"3584", "3584"},
		{"100000", "100000"},
	} {
		r, f, _ := newResources(t)
		file := filepath.Join(f.proc, "sys/kernel/threads-max")
		f.write(t, file, test.before+"\n")
		if _, err := r.Online(t.Context(), Amount{MemoryMiB: 384}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if got := strings.TrimSpace(string(text)); err != nil || got != test.after {
			t.Errorf("%s threads became %q, want %s: %v", test.before, got, test.after, err)
		}
	}
}

// The kernel allows threads in addition to its own number, for itself and the agent.
func TestReservedThreads(t *testing.T) {
	proc := t.TempDir()
	file := filepath.Join(proc, threadsFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("1604\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reserveThreads(proc); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "2116" {
		t.Errorf("%q, %v", text, err)
	}
}

// The guest has as many process ids as the kernel can give.
func TestProcessIDs(t *testing.T) {
	proc := t.TempDir()
	file := filepath.Join(proc, "sys/kernel/pid_max")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("32768\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := allowPIDs(proc); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "4194304" {
		t.Errorf("%q, %v", text, err)
	}
}

// A kernel that refuses does not fail the growth.
func TestThreadsThatAreRefused(t *testing.T) {
	r, _, _ := newResources(t)
	r.proc = t.TempDir()
	if have, err := r.Online(t.Context(), Amount{MemoryMiB: 384}); err != nil || have.MemoryMiB != 384 {
		t.Errorf("%v, %v", have, err)
	}
}
