package guest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pci"
)

// volumeMachine has a disk of 8 sectors mounted on the target that it returns,
// as far as anything is: the file system there is the test's directory's.
func volumeMachine(t *testing.T) (*fakeMachine, string) {
	t.Helper()
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	f.write(t, f.sys+"/dev/block/254:0/size", "8\n")
	target := filepath.Join(f.run, "v")
	f.kernel.grow = func(fd int, magic int64, block, bytes uint64) error {
		if magic == 0 || block == 0 {
			t.Errorf("grow a file system of type %#x with blocks of %d bytes", magic, block)
		}
		return f.note(fmt.Sprint("grow to ", bytes))
	}
	must(t, f.Mount(t.Context(), []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "v")}))
	f.write(t, f.proc+"/self/mountinfo", "22 1 254:0 / "+target+" rw - ext4 /dev/vda rw\n")
	return f, target
}

func TestVolumeStatsOfMount(t *testing.T) {
	f, target := volumeMachine(t)
	stats, err := f.VolumeStats(target)
	must(t, err)
	var st unix.Statfs_t
	must(t, unix.Statfs(target, &st))
	if stats.GetTotalBytes() != st.Blocks*uint64(st.Frsize) || stats.GetTotalInodes() != st.Files || stats.GetReadOnly() {
		t.Errorf("%v, want what statfs says: %+v", stats, st)
	}
	if stats.GetUsedBytes()+stats.GetAvailableBytes() > stats.GetTotalBytes() || stats.GetUsedInodes() > stats.GetTotalInodes() {
		t.Errorf("the parts are more than the whole: %v", stats)
	}
}

func TestGrowVolumeWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, target := volumeMachine(t)
		time.AfterFunc(time.Second, func() { f.write(t, f.sys+"/dev/block/254:0/size", "16\n") })
		must(t, f.GrowVolume(t.Context(), target, 4097))
		if last := f.done[len(f.done)-1]; last != "grow to 8192" {
			t.Errorf("%q, want all that the disk has", f.done)
		}
		began := time.Now()
		err := f.GrowVolume(t.Context(), target, 8193)
		if err == nil || !strings.Contains(err.Error(), "has 8192 bytes, want 8193") || time.Since(began) != pci.Timeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestGrowVolumeRefuses(t *testing.T) {
	f, target := volumeMachine(t)
	for _, other := range []string{"", "/", f.run, target + "/", target + "/..", f.run + "/w"} {
		if err := f.GrowVolume(t.Context(), other, 1); !errdefs.IsNotFound(err) {
			t.Errorf("grow %q: %v", other, err)
		}
		if _, err := f.VolumeStats(other); !errdefs.IsNotFound(err) {
			t.Errorf("stats of %q: %v", other, err)
		}
	}
	full := errors.New("no space")
	f.answers["grow to 4096"] = []error{full}
	if err := f.GrowVolume(t.Context(), target, 1); !errors.Is(err, full) || !strings.Contains(err.Error(), target) {
		t.Errorf("a kernel that refuses: %v", err)
	}
	f.write(t, f.proc+"/self/mountinfo", "")
	if err := f.GrowVolume(t.Context(), target, 1); !errdefs.IsNotFound(err) {
		t.Errorf("grow what is not mounted: %v", err)
	}
}

// Another file system than the two is named, and left alone.
func TestGrowMountedOther(t *testing.T) {
	if err := growMounted(-1, unix.BTRFS_SUPER_MAGIC, 4096, 1<<30); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "0x9123683e") {
		t.Error(err)
	}
	if err := growMounted(-1, unix.EXT4_SUPER_MAGIC, 4096, 1<<30); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
	if err := growMounted(-1, unix.XFS_SUPER_MAGIC, 4096, 1<<30); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
}
