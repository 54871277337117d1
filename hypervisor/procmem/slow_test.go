package procmem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuController is where hosts have the controller of CPU time: as a version 1
// hierarchy, or in the unified one.
var cpuController = []struct{ dir, file, quota, none string }{
	{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "2000", "-1"},
	{"/sys/fs/cgroup", "cpu.max", "2000 100000", "max"},
}

// slowGroup returns a cgroup whose processes get 2 ms of CPU time in each 100 ms, until
// lift is called. It is removed after those that are started later in the test.
func slowGroup(t *testing.T) (dir string, lift func()) {
	t.Helper()
	for _, c := range cpuController {
		dir := filepath.Join(c.dir, fmt.Sprintf("procmem-test-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		file := filepath.Join(dir, c.file)
		if _, err := os.Stat(file); err != nil { // no such controller, or no cgroup at all
			must(t, unix.Rmdir(dir))
			continue
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
		must(t, os.WriteFile(file, []byte(c.quota), 0))
		return dir, func() { must(t, os.WriteFile(file, []byte(c.none), 0)) }
	}
	t.Skip("this test needs a cgroup with CPU time")
	return "", nil
}

// removeCgroup removes a cgroup whose processes have ended.
func removeCgroup(t *testing.T, dir string) {
	for range 1000 {
		err := unix.Rmdir(dir)
		if !errors.Is(err, unix.EBUSY) {
			if err != nil {
				t.Error(err)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s is in use", dir)
}

// A process that gets almost no CPU time lives, and its threads go on. Discard may fail.
func TestDiscardOfSlowProcess(t *testing.T) {
	slow, lift := slowGroup(t)
	fd, err := unix.MemfdCreate("large", unix.MFD_CLOEXEC)
	must(t, err)
	large := os.NewFile(uintptr(fd), "large")
	defer large.Close()
	must(t, large.Truncate(largeSize))
	p := startHelper(t, withLarge, large)
	m := p.mappingOf(t, large)
	block := bytes.Repeat([]byte{7}, 1<<20)
	for at := int64(0); at < largeSize; at += int64(len(block)) {
		must(t, m.PutBlock(block, at))
	}
	must(t, os.WriteFile(filepath.Join(slow, "cgroup.procs"), fmt.Append(nil, p.Process.Pid), 0))
	if err := m.Discard(t.Context()); err != nil {
		t.Log(err)
	}
	lift()
	p.is(t, "changed")
	must(t, m.Discard(t.Context()))
	if used, err := m.Used(); err != nil || used != 0 {
		t.Errorf("%d bytes in use, %v", used, err)
	}
}
