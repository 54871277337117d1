package volume

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// makeIn makes a directory in another one.
func makeIn(t *testing.T, dir string) string {
	t.Helper()
	made := filepath.Join(dir, fmt.Sprintf("katabox-test-%d", os.Getpid()))
	if err := os.Mkdir(made, 0o755); err != nil {
		t.Skip("needs to make a directory:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(made) })
	return made
}

func TestIsHosts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to make files below /dev")
	}
	memory, devices := makeIn(t, "/dev/shm"), makeIn(t, "/dev")
	file := write(t, filepath.Join(devices, "file"), "text")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(devices, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	disk := filepath.Join(devices, "disk")
	if err := unix.Mknod(disk, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99))); err != nil {
		t.Skip("needs to make device nodes:", err)
	}
	link := filepath.Join(devices, "link")
	if err := os.Symlink(disk, link); err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(memory, "disk")
	if err := unix.Mknod(forged, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		forged: false, memory: true, file: true, filepath.Join(devices, "log"): true, disk: true, link: true,
		devices: false, "/dev": false, "/dev/shm": false, "/dev/./shm/": false, "/dev/null": false, "/dev/pts": false, "/dev/no-such": false,
	} {
		if got := IsHosts(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	n := newNode(t)
	for _, opts := range []Options{shared, {}} {
		for _, source := range []string{disk, link} {
			if v, err := n.classify(opts, guestspec.Bind{Source: source}); err != nil || v.Kind != Device || v.Disk.Path != disk {
				t.Errorf("%s is of kind %v, %s, %v; want the device", source, v.Kind, v.Disk.Path, err)
			}
		}
	}
	// A guest can make a node in a volume.
	if v, err := n.classify(shared, guestspec.Bind{Source: forged}); err != nil || v.Kind != Shared {
		t.Errorf("a node in a volume is of kind %v, %v; want it shared", v.Kind, err)
	}
	if v, err := n.classify(Options{}, guestspec.Bind{Source: forged}); err == nil {
		t.Errorf("without a share it is of kind %v, want an error", v.Kind)
	}
}
