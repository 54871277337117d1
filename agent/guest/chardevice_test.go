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

// mknod makes a character device in a directory of nodes.
func mknod(dir, name string, major, minor uint32) error {
	node := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(node), 0o755); err != nil {
		return err
	}
	return unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor)))
}

func TestFindChar(t *testing.T) {
	f := newMachine(t)
	if err := mknod(f.dev, "null", 1, 3); err != nil {
		t.Skipf("needs to make device nodes: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(f.dev, "kvm"), nil, 0o600))
	var loaded []string
	f.Modules = newModules(modules.List{{When: modules.Demand, Name: "tun", Path: "/tun.ko"}, {When: modules.Demand, Name: "cuse", Path: "/cuse.ko"}})
	f.Modules.load = func(path, _ string) error {
		loaded = append(loaded, path)
		if path == "/tun.ko" {
			return mknod(f.dev, "net/tun", 10, 200)
		}
		return nil // and there is no node
	}
	want := Char{Node: filepath.Join(f.dev, "null"), Major: 1, Minor: 3, Common: true}
	if got, err := f.FindChar("null", false); err != nil || got != want {
		t.Errorf("null: %+v, %v", got, err)
	}
	want = Char{Node: filepath.Join(f.dev, "net/tun"), Major: 10, Minor: 200}
	for range 2 {
		if got, err := f.FindChar("net/tun", true); err != nil || got != want {
			t.Errorf("tun: %+v, %v", got, err)
		}
	}
	for name, text := range map[string]string{"cuse": "no such file", "kvm": "is not a character device", "fuse": "no character device fuse", "vsock": "no such file"} {
		if _, err := f.FindChar(name, true); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "device "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "mem", "../dev/null", "vda", "null/"} {
		if _, err := f.FindChar(name, true); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := strings.Join(loaded, " "); got != "/tun.ko /cuse.ko" {
		t.Errorf("loaded %s", got)
	}
}

// A module that the kernel requests by the device's number is left to it, unless its
// node is needed.
func TestFindCharLoadedByOpen(t *testing.T) {
	f := newMachine(t)
	if err := mknod(f.dev, "null", 1, 3); err != nil {
		t.Skipf("needs to make device nodes: %v", err)
	}
	var loaded []string
	f.Modules = newModules(modules.List{
		{When: modules.Kernel, Name: "tun", Path: "/tun.ko", Aliases: []string{"rtnl-link-tun", "char-major-10-200"}},
		{When: modules.Demand, Name: "uhid", Path: "/uhid.ko", Aliases: []string{"char-major-10-23"}},
		{When: modules.Demand, Name: "other", Path: "/other.ko", Aliases: []string{"char-major-10-203"}},
		{When: modules.Demand, Name: "cuse", Path: "/cuse.ko"},
		{When: modules.Builtin, Name: "uinput", Path: "-", Aliases: []string{"char-major-10-223"}},
	})
	f.Modules.load = func(path, _ string) error {
		loaded = append(loaded, path)
		if path == "/tun.ko" {
			return mknod(f.dev, "net/tun", 10, 200)
		}
		return nil
	}
	want := Char{Node: filepath.Join(f.dev, "net/tun"), Major: 10, Minor: 200}
	for _, test := range []struct {
		node   bool
		loaded int
	}{{false, 0}, {true, 1}, {false, 1}} {
		got, err := f.FindChar("net/tun", test.node)
		if err != nil || got != want || len(loaded) != test.loaded {
			t.Errorf("tun, %v: %+v, %v, loaded %q", test.node, got, err, loaded)
		}
	}
	for _, name := range []string{"uhid", "cuse", "uinput", "fuse"} {
		if got, err := f.FindChar(name, false); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got := strings.Join(loaded, " "); got != "/tun.ko /uhid.ko /cuse.ko" {
		t.Errorf("loaded %s", got)
	}
}
