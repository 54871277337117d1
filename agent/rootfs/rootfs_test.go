package rootfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// build is a root file system on its way to a container, on a thread with its own
// namespaces.
type build struct {
	*testing.T
	config *configs.Config
	// outer is the host's directory with the root and everything else of the test.
	outer string
	root  *Root
}

// onThread runs f on a thread with its own mount and IPC namespaces and an empty
// root file system. The thread ends with f's goroutine, and its mounts with it.
func onThread(t *testing.T, f func(b *build)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	b := &build{T: t, outer: t.TempDir()}
	b.config = &configs.Config{
		Rootfs:     filepath.Join(b.outer, "rootfs"),
		Namespaces: configs.Namespaces{{Type: configs.NEWNS}},
	}
	b.dir("rootfs")
	done := make(chan struct{})
	go func() {
		defer close(done) // Also after a Fatal.
		runtime.LockOSThread()
		b.must(unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWIPC))
		b.must(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
		defer func() {
			if b.root != nil {
				b.must(b.root.Close())
			}
		}()
		f(b)
	}()
	<-done
}

func (b *build) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// dir makes a directory below outer and returns its path.
func (b *build) dir(name string) string {
	b.Helper()
	at := filepath.Join(b.outer, name)
	b.must(os.MkdirAll(at, 0o755))
	return at
}

// file makes a file below outer and returns its path.
func (b *build) file(name, content string) string {
	b.Helper()
	b.dir(filepath.Dir(name))
	at := filepath.Join(b.outer, name)
	b.must(os.WriteFile(at, []byte(content), 0o644))
	return at
}

// link makes a link in the root.
func (b *build) link(target, name string) {
	b.Helper()
	b.dir(filepath.Dir(filepath.Join("rootfs", name)))
	b.must(os.Symlink(target, filepath.Join(b.config.Rootfs, name)))
}

// mounts opens the root and makes its mounts. What is for a process of the
// container's this thread makes itself.
func (b *build) mounts() error {
	b.Helper()
	root, err := Open(b.config)
	if err != nil {
		return err
	}
	b.root = root
	var inner []string
	for i, m := range Inner(b.config) {
		at := b.dir(fmt.Sprint("inner", i))
		b.must(unix.Mount(m.Source, at, m.Type, m.Flags, m.Data))
		inner = append(inner, at)
	}
	return root.Mount(inner)
}

// all builds the root from beginning to end.
func (b *build) all() {
	b.Helper()
	b.must(b.mounts())
	b.must(b.root.Enter("/"))
	b.must(b.root.Finish())
}

// refused wants mounts to fail with an error that has the words.
func (b *build) refused(words ...string) {
	b.Helper()
	err := b.mounts()
	if err == nil {
		b.Fatalf("no error, want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			b.Errorf("error %q has no %q", err, w)
		}
	}
}

// mountinfo returns the thread's mounts in the kernel's order, as "root place
// options propagation type source superblock's options", without what differs
// between hosts. The container needs no /proc for it.
func (b *build) mountinfo() []string {
	b.Helper()
	fd, err := unix.Openat(b.root.proc, "thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	b.must(err)
	f := os.NewFile(uintptr(fd), "mountinfo")
	defer f.Close()
	content, err := io.ReadAll(f)
	b.must(err)
	var list []string
	for line := range strings.Lines(string(content)) {
		left, right, _ := strings.Cut(strings.TrimSpace(line), " - ")
		words := strings.Fields(left)
		list = append(list, strings.Join(append(words[3:], right), " "))
	}
	return list
}

// at returns the line of mountinfo of the last mount at a place.
func (b *build) at(place string) string {
	b.Helper()
	found := ""
	for _, line := range b.mountinfo() {
		if strings.Fields(line)[1] == place {
			found = line
		}
	}
	if found == "" {
		b.Fatalf("no mount at %s in\n%s", place, strings.Join(b.mountinfo(), "\n"))
	}
	return found
}

// device returns a character device of the config.
func device(path string, major, minor int64, mode os.FileMode) *devices.Device {
	return &devices.Device{Rule: devices.Rule{Type: devices.CharDevice, Major: major, Minor: minor}, Path: path, FileMode: mode}
}

func bindOf(source, destination string, flags int, propagation ...int) *configs.Mount {
	return &configs.Mount{Source: source, Destination: destination, Device: "bind", Flags: unix.MS_BIND | flags, PropagationFlags: propagation}
}

func tmpfsAt(destination string, flags int, data string) *configs.Mount {
	return &configs.Mount{Source: "tmpfs", Destination: destination, Device: "tmpfs", Flags: flags, Data: data}
}

func procAt(destination string) *configs.Mount {
	return &configs.Mount{Source: "proc", Destination: destination, Device: "proc"}
}

// typical makes the config what containerd has for a container of a pod.
func (b *build) typical() {
	b.Helper()
	const restricted = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	hosts := b.file("hosts", "10.0.0.1 host\n")
	volume := b.dir("volume")
	b.config.Mounts = []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: restricted},
		tmpfsAt("/dev", unix.MS_NOSUID|unix.MS_STRICTATIME, "mode=755,size=65536k"),
		{Source: "devpts", Destination: "/dev/pts", Device: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC, Data: "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{Source: "mqueue", Destination: "/dev/mqueue", Device: "mqueue", Flags: restricted},
		{Source: "sysfs", Destination: "/sys", Device: "sysfs", Flags: restricted | unix.MS_RDONLY},
		{Source: "cgroup", Destination: "/sys/fs/cgroup", Device: "cgroup", Flags: restricted | unix.MS_RDONLY | unix.MS_RELATIME},
		bindOf(hosts, "/etc/hosts", unix.MS_REC|unix.MS_RDONLY, unix.MS_PRIVATE|unix.MS_REC),
		tmpfsAt("/dev/shm", restricted, "mode=1777,size=65536k"),
		bindOf(volume, "/data", unix.MS_REC, unix.MS_PRIVATE|unix.MS_REC),
		bindOf(volume, "/data/again", unix.MS_NODEV),
	}
	b.config.Devices = []*devices.Device{
		device("/dev/null", 1, 3, 0o666), device("/dev/zero", 1, 5, 0o666), device("/dev/full", 1, 7, 0o666),
		device("/dev/random", 1, 8, 0o666), device("/dev/urandom", 1, 9, 0o666), device("/dev/tty", 5, 0, 0o666),
	}
	b.config.MaskPaths = []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/missing", "/proc/timer_list", "/proc/scsi", "/sys/firmware"}
	b.config.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/missing", "/proc/sys", "/proc/sysrq-trigger"}
}
