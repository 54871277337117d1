package container

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// mountedAt reports whether something is mounted at a directory.
func mountedAt(t *testing.T, dir string) bool {
	t.Helper()
	var here, above unix.Stat_t
	for path, st := range map[string]*unix.Stat_t{dir: &here, filepath.Dir(dir): &above} {
		if err := unix.Stat(path, st); err != nil {
			t.Fatal(err)
		}
	}
	return here.Dev != above.Dev
}

func tmpfsAt(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func settled() bool { return true }

// A volume is mounted until the last container that has it leaves, each as often as it
// has it.
func TestPodVolumeIsUnmountedByTheLast(t *testing.T) {
	var p podVolumes
	dir := tmpfsAt(t)
	for range 3 {
		if err := p.enterOne(dir); err != nil {
			t.Fatal(err)
		}
	}
	p.leave([]string{dir, dir}, settled)
	if !mountedAt(t, dir) {
		t.Error("another container has it")
	}
	p.leave([]string{dir}, settled)
	if mountedAt(t, dir) || len(p.used) != 0 {
		t.Errorf("without a user: %v", p.used)
	}
}

// A volume whose requests are not answered stays mounted.
func TestPodVolumeThatIsNotSettledStays(t *testing.T) {
	var p podVolumes
	dir := tmpfsAt(t)
	if err := p.enterOne(dir); err != nil {
		t.Fatal(err)
	}
	p.leave([]string{dir}, func() bool { return false })
	if !mountedAt(t, dir) || len(p.used) != 0 {
		t.Errorf("mounted: %v; used: %v", mountedAt(t, dir), p.used)
	}
}

// What cannot be mounted is an error, and can be tried again. What is no mount, as with
// a server that announces none, is left alone.
func TestPodVolumeThatIsNotThere(t *testing.T) {
	var p podVolumes
	dir := filepath.Join(t.TempDir(), "volume")
	if err := p.enterOne(dir); err == nil || len(p.used) != 0 {
		t.Fatalf("%v, used: %v", err, p.used)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.enterOne(dir); err != nil {
		t.Fatal(err)
	}
	p.leave([]string{dir}, settled)
	if _, err := os.Stat(dir); err != nil || len(p.used) != 0 {
		t.Errorf("%v, used: %v", err, p.used)
	}
}

func TestPodVolumeConcurrently(t *testing.T) {
	var p podVolumes
	dir := tmpfsAt(t)
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 100 {
				if err := p.enterOne(dir); err != nil {
					t.Error(err)
					return
				}
				p.leave([]string{dir}, settled)
			}
		})
	}
	users.Wait()
	if len(p.used) != 0 {
		t.Errorf("used: %v", p.used)
	}
}
