package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/pci"
)

// tree makes a PCI tree of files with the given paths and contents.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		mkdir(t, filepath.Dir(filepath.Join(root, path)))
		must(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	return root
}

func TestNICAt(t *testing.T) {
	root := tree(t, map[string]string{
		"0000:00:1f.0/virtio0/net/eth0/ifindex":              "2\n",
		"0000:00:01.0/0000:01:1e.0/virtio3/net/eth1/ifindex": "3\n",
		"0000:00:01.0/0000:01:1d.0/virtio4/block/vda/size":   "0\n",
		"0000:00:01.0/0000:01:1c.0/vendor":                   "0x1af4\n",
		"0000:00:01.0/0000:01:1b.0/virtio5/net/eth2/ifindex": "two\n",
		"0000:00:01.0/0000:01:1a.1/virtio6/net/eth3/ifindex": "6\n",
		"0000:00:01.0/0000:00:01.0:pcie001/uevent":           "",
	})
	for path, want := range map[string]int{"1f": 2, "01/1e": 3} {
		if index, err := nicAt(root, path); err != nil || index != want {
			t.Errorf("%s: %d, %v, want %d", path, index, err, want)
		}
	}
	for path, want := range map[string]string{
		"02":    "no device in slot 02",
		"01/1d": "0000:01:1d.0 has 0 virtio network interfaces",
		"01/1c": "0000:01:1c.0 has 0 virtio network interfaces",
		"01/1a": "no device in slot 1a behind 0000:00:01.0",
	} {
		if index, err := nicAt(root, path); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v, want %q", path, index, err, want)
		}
	}
	if index, err := nicAt(root, "01/1b"); err == nil || errdefs.IsNotFound(err) {
		t.Errorf("a number that is none: %d, %v", index, err)
	}
	if _, err := nicAt(filepath.Join(root, "no", "pci"), "01"); !errdefs.IsNotFound(err) {
		t.Errorf("a machine without PCI: %v", err)
	}
}

func TestFindWaits(t *testing.T) {
	nics := []nic{{name: "eth0", path: "01/1e"}}
	synctest.Test(t, func(t *testing.T) {
		n := New(nil)
		n.pci = tree(t, nil)
		began := time.Now()
		_, err := n.find(t.Context(), nics)
		if !errdefs.IsNotFound(err) || !errors.Is(err, pci.ErrLate) || !strings.Contains(err.Error(), "find interface eth0 at PCI path 01/1e: it did not come within 10s: no device in slot 01") {
			t.Error(err)
		}
		if took := time.Since(began); took != pci.Timeout {
			t.Errorf("gave up after %v, want %v", took, pci.Timeout)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := New(nil)
		n.pci = tree(t, nil)
		const after = 40 * time.Millisecond
		// It comes whole, as sysfs shows it.
		bridge := filepath.Join(t.TempDir(), "0000:00:01.0")
		dir := filepath.Join(bridge, "0000:01:1e.0", "virtio3", "net", "eth1")
		mkdir(t, dir)
		must(t, os.WriteFile(filepath.Join(dir, "ifindex"), []byte("3\n"), 0o600))
		time.AfterFunc(after, func() { must(t, os.Rename(bridge, filepath.Join(n.pci, filepath.Base(bridge)))) })
		began := time.Now()
		if indexes, err := n.find(t.Context(), nics); err != nil || indexes[0] != 3 {
			t.Errorf("%v, %v", indexes, err)
		}
		if took := time.Since(began); took < after || took > after+pci.Poll {
			t.Errorf("found after %v, plugged after %v", took, after)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := New(nil)
		n.pci = tree(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.find(ctx, nics); !errors.Is(err, context.DeadlineExceeded) || !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}
