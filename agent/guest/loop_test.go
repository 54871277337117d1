package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/modules"
)

func TestFindLoop(t *testing.T) {
	f := newMachine(t)
	if _, err := f.FindLoop("0"); !errdefs.IsNotFound(err) {
		t.Errorf("a guest without the driver: %v", err)
	}
	must(t, os.MkdirAll(f.dev, 0o755))
	var loaded []string
	f.Modules = newModules(modules.List{{When: modules.Demand, Name: "loop", Path: "/loop.ko"}})
	f.Modules.load = func(path, _ string) error {
		loaded = append(loaded, path)
		return unix.Mknod(filepath.Join(f.dev, "loop3"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 3)))
	}
	want := Disk{Node: filepath.Join(f.dev, "loop3"), Major: 7, Minor: 3}
	got, err := f.FindLoop("3")
	if os.Getuid() != 0 {
		t.Skip("needs to make device nodes")
	}
	if err != nil || got != want || strings.Join(loaded, " ") != "/loop.ko" {
		t.Errorf("got %+v, %v, loaded %q", got, err, loaded)
	}
	must(t, os.WriteFile(filepath.Join(f.dev, "loop4"), nil, 0o600))
	for _, number := range []string{"4", "5"} {
		if _, err := f.FindLoop(number); !errdefs.IsNotFound(err) {
			t.Errorf("loop%s: %v", number, err)
		}
	}
	for _, number := range []string{"", "8", "-1", "../3", "300", "control"} {
		if _, err := f.FindLoop(number); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", number, err)
		}
	}
}
