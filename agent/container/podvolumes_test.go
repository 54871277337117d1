package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/ownthread"
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

// What a container with rshared mounts in a volume is seen by those with rshared or
// rslave, whichever was made first, and not by others; nothing of it outlives the
// volume. Each container here is a thread with a copy of the agent's mounts.
func TestMountsInPodVolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	volume, destination := t.TempDir(), t.TempDir()
	err := inMountNamespace(-1, unix.MS_PRIVATE, func() error {
		agent, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(agent)
		if err := unix.Mount("tmpfs", volume, "tmpfs", 0, ""); err != nil {
			return err
		}
		var p podVolumes
		if err := errors.Join(p.enterOne(volume), os.Mkdir(filepath.Join(volume, "in"), 0o755), propagateIn(volume)); err != nil {
			return err
		}
		if err := checkPropagation(t, agent, volume, destination); err != nil {
			return err
		}
		p.leave([]string{volume}, settled)
		table, err := os.ReadFile("/proc/thread-self/mounts")
		if strings.Contains(string(table), volume) {
			t.Errorf("mounts remain:\n%s", table)
		}
		return err
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip("no mount namespace: ", err)
	}
	if err != nil {
		t.Error(err)
	}
}

// checkPropagation has a container mount something, and others look for it.
func checkPropagation(t *testing.T, agent int, volume, destination string) error {
	bind := func(flags uintptr) error {
		return errors.Join(unix.Mount(volume, destination, "", unix.MS_BIND|unix.MS_REC, ""), unix.Mount("", destination, "", flags|unix.MS_REC, ""))
	}
	sees := map[string]struct {
		root, volume uintptr
		want         bool
	}{
		"rslave":                 {unix.MS_SLAVE, unix.MS_SLAVE, true},
		"rshared":                {unix.MS_SHARED, unix.MS_SHARED, true},
		"rprivate":               {unix.MS_SLAVE, unix.MS_PRIVATE, false},
		"rprivate, shared roots": {unix.MS_SHARED, unix.MS_PRIVATE, false},
	}
	var ready, others sync.WaitGroup
	mounted := make(chan struct{})
	for name, other := range sees {
		ready.Add(1)
		others.Go(func() {
			isReady := sync.OnceFunc(ready.Done)
			defer isReady()
			err := inMountNamespace(agent, other.root, func() error {
				if err := bind(other.volume); err != nil {
					return err
				}
				isReady()
				<-mounted
				if _, err := os.Stat(filepath.Join(destination, "in", "file")); (err == nil) != other.want {
					t.Errorf("%s: %v, want it seen: %v", name, err, other.want)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	ready.Wait()
	err := inMountNamespace(agent, unix.MS_SHARED, func() error {
		if err := bind(unix.MS_SHARED); err != nil {
			return err
		}
		in := filepath.Join(destination, "in")
		return errors.Join(unix.Mount("tmpfs", in, "tmpfs", 0, ""), os.WriteFile(filepath.Join(in, "file"), nil, 0o600))
	})
	close(mounted)
	others.Wait()
	return err
}

// inMountNamespace runs f on a thread with a copy of a namespace's mounts, or with fd -1
// of the process's, all with that propagation.
func inMountNamespace(fd int, propagation uintptr, f func() error) error {
	return ownthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if fd >= 0 {
			if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
				return err
			}
		}
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", propagation|unix.MS_REC, ""); err != nil {
			return err
		}
		return f()
	})
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

// A volume in memory is known by the table of mounts, whatever is mounted on it.
func TestMemoryVolume(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	text := ""
	for _, line := range []string{
		"21 1 0:5 / / rw - rootfs rootfs rw",
		"30 21 0:40 / FILES/1 rw,relatime shared:7 - tmpfs none rw,mode=755",
		"31 30 0:41 / FILES/1 rw - fuse.s3fs bucket rw",
		"32 21 7:0 / FILES/2 rw - ext4 /dev/loop0 rw",
		"33 21 0:43 / FILES/3/in rw - tmpfs none rw",
	} {
		text += strings.ReplaceAll(line, "FILES", api.GuestFilesDir) + "\n"
	}
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{
		api.GuestFilesDir + "/1": true, api.GuestFilesDir + "/2": false, api.GuestFilesDir + "/3": false, api.GuestFilesDir + "/3/in": false,
		api.GuestFilesDir + "/9": false, api.GuestStorageDir + "/1": false,
	} {
		if got, err := isMemoryVolume(source, table); got != want || err != nil {
			t.Errorf("%s: %v, %v", source, got, err)
		}
	}
	if _, err := isMemoryVolume(api.GuestFilesDir+"/1", "/nowhere"); err == nil {
		t.Error("a table that cannot be read is no error")
	}
}
