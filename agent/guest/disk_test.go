package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/pci"
)

func TestFindDisk(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	f.blk(t, "1d", "vdb", "254:16")
	f.lun(t, 0, 7, "sda", "8:0")
	f.lun(t, 0, 17, "sdb", "8:16")
	f.lun(t, 10, 7, "sdc", "8:32")
	for source, want := range map[string]Disk{
		"virtio-blk 01/1e": {Node: "vda", Major: 254},
		"virtio-blk 01/1d": {Node: "vdb", Major: 254, Minor: 16},
		"scsi 01/02:0:7":   {Node: "sda", Major: 8},
		"scsi 01/02:0:17":  {Node: "sdb", Major: 8, Minor: 16},
		"scsi 01/02:10:7":  {Node: "sdc", Major: 8, Minor: 32},
	} {
		driver, source, _ := strings.Cut(source, " ")
		want.Node = filepath.Join(f.dev, want.Node)
		if got, err := f.FindDisk(t.Context(), driver, source); err != nil || got != want {
			t.Errorf("%s %s: %+v, %v, want %+v", driver, source, got, err, want)
		}
	}
}

func TestFindDiskRefuses(t *testing.T) {
	f := newMachine(t)
	for _, source := range []string{
		"virtio-blk ", "virtio-blk 01/1e:0:0", "virtio-blk 20", "virtio-blk ../01", "virtio-blk *",
		"scsi 01/02", "scsi 01/02:0", "scsi 01/02:256:0", "scsi 01/02:0:16384", "scsi 01/02:-1:0", "scsi 01/02:0:0:0",
		"scsi :0:0", "scsi 01/2:0:0", "scsi 01/02:*:0", "scsi 01/02:0:99999999999999999999", "nvme 01/02", " 01/02",
	} {
		driver, source, _ := strings.Cut(source, " ")
		if _, err := f.FindDisk(t.Context(), driver, source); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "want") {
			t.Errorf("%q %q: %v", driver, source, err)
		}
	}
}

func TestFindDiskWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		began := time.Now()
		_, err := f.FindDisk(t.Context(), scsi, "01/02:3:0")
		if !errdefs.IsNotFound(err) || !errors.Is(err, pci.ErrLate) || !strings.Contains(err.Error(), "find scsi disk 01/02:3:0: it did not come within 10s: no device in slot 01") {
			t.Error(err)
		}
		f.lun(t, 4, 0, "sda", "8:0")
		if _, err := f.FindDisk(t.Context(), scsi, "01/02:3:0"); err == nil || !strings.Contains(err.Error(), "0000:01:02.0 has 0 disks at target 3, LUN 0, want 1") {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*pci.Timeout {
			t.Errorf("gave up after %v, want %v", took, 2*pci.Timeout)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		const after = 40 * time.Millisecond
		f.blk(t, "1e", "vda", "254:0")
		must(t, os.Remove(filepath.Join(f.dev, "vda"))) // The node comes last.
		time.AfterFunc(after, func() { must(t, os.WriteFile(filepath.Join(f.dev, "vda"), nil, 0o600)) })
		began := time.Now()
		if _, err := f.FindDisk(t.Context(), virtioBlk, "01/1e"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < after || took > after+pci.Poll {
			t.Errorf("found after %v, plugged after %v", took, after)
		}
	})
}

func TestFindDiskLoadsDrivers(t *testing.T) {
	f := newMachine(t)
	must(t, os.RemoveAll(filepath.Join(f.sys, "bus", "scsi")))
	_, err := f.FindDisk(t.Context(), scsi, "01/02:0:0")
	if err == nil || !strings.Contains(err.Error(), "load module sd_mod: neither") {
		t.Error(err)
	}
}

func TestOpenDisk(t *testing.T) {
	null := Disk{Node: "/dev/null", Major: 1, Minor: 3}
	if err := openDisk(null, 0); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a character device: %v", err)
	}
	if err := openDisk(Disk{Node: filepath.Join(t.TempDir(), "none")}, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no node: %v", err)
	}
}

func FuzzParsePlace(f *testing.F) {
	for _, seed := range [][2]string{{scsi, "01/02:0:7"}, {virtioBlk, "01/1e"}, {scsi, "1f:255:16383"}, {"nvme", ""}, {scsi, "01:0:[0"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, driver, source string) {
		place, err := parsePlace(driver, source)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Error(err)
			}
			return
		}
		if !pci.ValidPath(place.path) || place.target < 0 || place.target > maxTarget || place.lun < 0 || place.lun > maxLUN {
			t.Errorf("%+v", place)
		}
		if again := fmt.Sprintf("%s:%d:%d", place.path, place.target, place.lun); driver == scsi && len(again) > len(source) {
			t.Errorf("%q was read as %q", source, again)
		}
		if _, err := filepath.Match(place.pattern(), ""); err != nil {
			t.Errorf("pattern %q: %v", place.pattern(), err)
		}
	})
}
