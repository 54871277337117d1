package hostcgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestContainerPath(t *testing.T) {
	for _, tt := range []struct{ cgroups, want string }{
		{"/kubepods/burstable/pod1/c1", "/kubepods/burstable/pod1/c1"},
		{"default/c1", "/default/c1"},
		{"../../c1/", "/c1"},
		{"kubepods-pod1.slice:cri-containerd:c1", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-c1.scope"},
		{":docker:c1", "/system.slice/docker-c1.scope"},
		{"a.slice::c1", "/a.slice/c1.scope"},
		{"a:b", "/a:b"},
	} {
		if got, err := containerPath(tt.cgroups); got != tt.want || err != nil {
			t.Errorf("%q: %q, %v, want %q", tt.cgroups, got, err, tt.want)
		}
	}
	for _, wrong := range []string{"/", "..", "a.slice:p:../c1", "a--b.slice:p:n", "/a\x00/b"} {
		if got, err := containerPath(wrong); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %q, %v", wrong, got, err)
		}
	}
}

// newContainer plans a container's cgroup below a parent, and checks at the
// end that nothing is left of both.
func newContainer(t *testing.T, root, parent string) *Container {
	t.Helper()
	c, err := NewContainer(root, parent+"/c1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Dir(c.Dir())); err == nil {
			t.Errorf("%s is left", filepath.Dir(c.Dir()))
		}
	})
	return c
}

// memoryLimitOf reads a cgroup's limit; ok is false if v2 has no memory
// controller, as in the second tree of a host with v1.
func memoryLimitOf(t *testing.T, c *Container) (limit string, ok bool) {
	t.Helper()
	file := "memory.limit_in_bytes"
	if c.unified {
		file = "memory.max"
	}
	data, err := os.ReadFile(filepath.Join(c.Dir(), file))
	if err != nil && (!c.unified || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data)), err == nil
}

func TestContainer(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		c := newContainer(t, root, parentName(t))
		if err := c.Make(); err != nil {
			t.Fatal(err)
		}
		pid := sleeper(t)
		if err := c.Add(pid); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(filepath.Join(c.Dir(), procsFile)); strings.TrimSpace(string(data)) != strconv.Itoa(pid) {
			t.Errorf("in the cgroup are %q, %v", data, err)
		}
		if _, ok := memoryLimitOf(t, c); ok {
			for _, limit := range []int64{64 << 20, 0, 32 << 20} {
				if err := c.SetMemory(limit); err != nil {
					t.Error(err)
				}
			}
			if got, _ := memoryLimitOf(t, c); got != strconv.Itoa(32<<20) {
				t.Errorf("the limit is %s", got)
			}
			if err := c.SetMemory(-2); err != nil {
				t.Error(err)
			}
			if got, _ := memoryLimitOf(t, c); got == strconv.Itoa(32<<20) {
				t.Error("the limit stays")
			}
		}
		if err := c.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Dir()); err != nil {
			t.Error("a cgroup with a process in it was removed")
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEmpty(t, c.Dir())
		if err := c.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func awaitEmpty(t *testing.T, dir string) {
	t.Helper()
	for used(dir) {
		if t.Context().Err() != nil {
			t.Fatalf("%s is not empty", dir)
		}
	}
}

// Two containers that name the same cgroup share it; the last one removes it. A
// cgroup made by another program stays.
func TestContainerThatIsThere(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		parent := parentName(t)
		first, second := newContainer(t, root, parent), newContainer(t, root, parent)
		if err := errors.Join(first.Make(), second.Make(), first.Remove(t.Context()), second.Remove(t.Context())); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.Mkdir(filepath.Dir(first.Dir()), 0o755), os.Mkdir(first.Dir(), 0o755)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(first.Make(), first.Remove(t.Context()), RemoveContainer(t.Context(), first.Dir())); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.Remove(first.Dir()), os.Remove(filepath.Dir(first.Dir()))); err != nil {
			t.Errorf("another's cgroup: %v", err)
		}
	})
}
