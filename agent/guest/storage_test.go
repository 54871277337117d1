package guest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// disk is a storage on a disk of a fakeMachine.
func (f *fakeMachine) disk(driver, source, fstype, target string, options ...string) *api.Storage {
	return &api.Storage{Driver: driver, Source: source, Fstype: fstype, Target: filepath.Join(f.run, target), Options: options}
}

func TestMountDisks(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	f.lun(t, 0, 7, "sda", "8:0")
	storages := []*api.Storage{
		f.disk(virtioBlk, "01/1e", "ext4", "a", "nosuid", "data=ordered"),
		f.disk(scsi, "01/02:0:7", "erofs", "b"),
		f.disk(virtioBlk, "01/1e", "ext4", "c/d", "ro"),
	}
	must(t, f.Mount(t.Context(), storages))
	must(t, f.Unmount(storages))
	want := []string{
		"mount ext4 dev/vda run/a nosuid data=ordered", "mount erofs dev/sda run/b ro", "mount ext4 dev/vda run/c/d ro",
		"unmount run/c/d", "unmount run/b", "unmount run/a",
	}
	if diff := cmp.Diff(want, f.done); diff != "" {
		t.Error(diff)
	}
	if len(f.disks) != 0 {
		t.Errorf("remembered: %v", f.disks)
	}
	if left, err := os.ReadDir(f.run); err != nil || len(left) != 1 { // c, which it did not make
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDiskOptions(t *testing.T) {
	for _, test := range []struct{ fstype, options, want string }{
		{"xfs", "", "nouuid"}, {"xfs", "ro,nouuid", "ro,nouuid"}, {"xfs", "ro", "ro,nouuid"},
		{"erofs", "", "ro"}, {"erofs", "rw", "rw,ro"}, {"ext4", "ro", "ro"},
	} {
		var options []string
		if test.options != "" {
			options = []string{test.options}
		}
		if got := strings.Join(diskOptions(test.fstype, options, nil), ","); got != test.want {
			t.Errorf("%s %q: %q, want %q", test.fstype, test.options, got, test.want)
		}
	}
}

func TestMountWithFurtherDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.blk(t, "1e", "vda", "254:0")
		f.blk(t, "1d", "vdb", "254:16")
		f.blk(t, "1c", "vdc", "254:32")
		a, b := f.disk(virtioBlk, "01/1e", "erofs", "a"), f.disk(virtioBlk, "01/1c", "erofs", "b")
		a.Devices, b.Devices = []string{"01/1d", "01/1c"}, []string{"01/1d"}
		must(t, f.Mount(t.Context(), []*api.Storage{a}))
		must(t, f.Mount(t.Context(), []*api.Storage{b}))
		f.held["vda"], f.held["vdb"], f.held["vdc"] = false, true, true
		must(t, f.Unmount([]*api.Storage{a})) // b uses both of the others.
		began := time.Now()
		if err := f.Unmount([]*api.Storage{b}); !errdefs.IsFailedPrecondition(err) || time.Since(began) != unmountWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		f.held["vdb"], f.held["vdc"] = false, false
		must(t, f.Unmount([]*api.Storage{b}))
		want := []string{
			"mount erofs dev/vda run/a ro device=dev/vdb,device=dev/vdc", "mount erofs dev/vdc run/b ro device=dev/vdb",
			"unmount run/a", "unmount run/b", "unmount run/b",
		}
		if diff := cmp.Diff(want, f.done); diff != "" || len(f.disks) != 0 {
			t.Errorf("%s, remembered %v", diff, f.disks)
		}
	})
}

func TestMounted(t *testing.T) {
	f := newMachine(t)
	if _, err := f.Mounted("/a"); err == nil {
		t.Error("no error without proc")
	}
	f.process(t, "self", "init", "mnt:[1]", nil, "30 1 0:5 / /a rw - tmpfs tmpfs rw\n31 1 0:5 / /b\\040\\134c rw - tmpfs tmpfs rw")
	for target, want := range map[string]bool{"/a": true, `/b \c`: true, "/": false, "/b": false, "/a/b": false} {
		if got, err := f.Mounted(target); err != nil || got != want {
			t.Errorf("%s: %v, %v", target, got, err)
		}
	}
}

func TestFurtherDisksRefused(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	for want, s := range map[string]*api.Storage{
		"file system ext4 has no further disks":    {Fstype: "ext4", Devices: []string{"01/1e"}},
		"129 further disks, want at most 128":      {Fstype: "erofs", Devices: make([]string, maxDevices+1)},
		"source of a virtio-blk disk is \"../x\"":  {Fstype: "erofs", Devices: []string{"../x"}},
		"mount options have 5000 bytes, want at m": {Fstype: "erofs", Options: []string{strings.Repeat("x", 5000)}},
	} {
		s.Driver, s.Source, s.Target = virtioBlk, "01/1e", f.run+"/x"
		if err := f.Mount(t.Context(), []*api.Storage{s}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(f.done) != 0 || len(f.disks) != 0 {
		t.Errorf("done %q, remembered %v", f.done, f.disks)
	}
}

func TestMountTheSameDiskOtherwise(t *testing.T) {
	for _, test := range []struct {
		options string
		fails   map[string]error
		err     string
		want    []string
	}{
		{"ro,nosuid", map[string]error{"mount ext4 dev/vda run/b nosuid ro": unix.EBUSY}, "",
			[]string{"mount ext4 dev/vda run/b nosuid ro", "mount ext4 dev/vda run/b nosuid", "mount run/b bind nosuid remount ro"}},
		{"nosuid", map[string]error{"mount ext4 dev/vda run/b nosuid": unix.EBUSY}, "",
			[]string{"mount ext4 dev/vda run/b nosuid", "mount ext4 dev/vda run/b nosuid ro", "mount run/b nosuid remount"}},
		{"nosuid", map[string]error{"mount ext4 dev/vda run/b nosuid": unix.EBUSY, "mount run/b nosuid remount": unix.EROFS}, "change it to what is wanted: read-only file system",
			[]string{"mount ext4 dev/vda run/b nosuid", "mount ext4 dev/vda run/b nosuid ro", "mount run/b nosuid remount", "unmount run/b"}},
		{"", map[string]error{"mount ext4 dev/vda run/b": unix.EBUSY, "mount ext4 dev/vda run/b ro": unix.EBUSY}, "device or resource busy",
			[]string{"mount ext4 dev/vda run/b", "mount ext4 dev/vda run/b ro"}},
	} {
		f := newMachine(t)
		f.blk(t, "1e", "vda", "254:0")
		for call, err := range test.fails {
			f.answers[call] = []error{err}
		}
		err := f.Mount(t.Context(), []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "b", test.options)})
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %v, want %q", test.options, err, test.err)
		}
		if diff := cmp.Diff(test.want, f.done); diff != "" {
			t.Errorf("%q: %s", test.options, diff)
		}
		if (len(f.disks) == 0) != (err != nil) {
			t.Errorf("%q: remembered %v", test.options, f.disks)
		}
	}
}

func TestMountRefuses(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	must(t, os.Symlink("/etc", filepath.Join(f.run, "link")))
	f.answers["mount ext4 dev/vda run/x"] = []error{unix.EACCES}
	disk := func(fstype, target string, options ...string) *api.Storage {
		return f.disk(virtioBlk, "01/1e", fstype, target, options...)
	}
	overlay := func(options ...string) *api.Storage { return f.disk("overlay", "", "", "o", options...) }
	lower := "lowerdir=" + f.run + "/l"
	for _, test := range []struct {
		s    *api.Storage
		want string
	}{
		{&api.Storage{Driver: "9p", Target: f.run + "/x"}, `unknown driver "9p"`},
		{disk("ext4", "x/../../y"), "is not a clean path below"},
		{disk("ext4", "."), "is not a clean path below"},
		{disk("ext4", "link/x"), "link is a symbolic link"},
		{disk("tmpfs", "x"), "file system tmpfs is not one of a disk"},
		{disk("", "x"), `file system is ""`},
		{disk("../ext4", "x"), `file system is "../ext4"`},
		{disk("zfs", "x"), "load module zfs: neither"},
		{disk("ext4", "x"), "is the disk read-only?"},
		{overlay(), "have no lowerdir"},
		{overlay(lower, "upperdir="+f.run+"/u"), "want both or none"},
		{overlay("lowerdir=/etc"), "not a clean path below"},
		{overlay("lowerdir=" + f.run + "/l:"), "not a clean path below"},
		{overlay("lowerdir=" + f.run + `/l\:/x`), "backslash"},
		{overlay(lower, "upperdir="+f.run+"/u", "workdir="+f.run+"/link/w"), "symbolic link"},
		{overlay(lower, "lowerdir+=/etc"), "lowerdir+"},
		{overlay("lowerdir=" + strings.Repeat(f.run+"/l:", 200) + f.run + "/l"), "want at most 4095"},
	} {
		f.done = nil
		err := f.Mount(t.Context(), []*api.Storage{test.s})
		var failed *StorageError
		if !errors.As(err, &failed) || failed.Target != test.s.GetTarget() {
			t.Errorf("%v: the error is about %+v", test.s, failed)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "mount storage "+test.s.GetTarget()) {
			t.Errorf("%v: %v, want %q", test.s, err, test.want)
		}
		if _, err := os.Stat(f.run + "/x"); err == nil {
			t.Errorf("%v: the target is left", test.s)
		}
		if len(f.done) > 1 || len(f.disks) != 0 {
			t.Errorf("%v: done %q, remembered %v", test.s, f.done, f.disks)
		}
	}
}

func TestMountOverlay(t *testing.T) {
	f := newMachine(t)
	lower := "lowerdir=" + f.run + "/l2:" + f.run + "/l1"
	must(t, f.Mount(t.Context(), []*api.Storage{
		f.disk("overlay", "", "", "o", lower, "upperdir="+f.run+"/rw/u", "workdir="+f.run+"/rw/w"),
		f.disk("overlay", "", "", "p", lower),
	}))
	want := []string{
		"mount overlay overlay run/o lowerdir=run/l2:run/l1,upperdir=run/rw/u,workdir=run/rw/w",
		"mount overlay overlay run/p ro lowerdir=run/l2:run/l1",
	}
	if diff := cmp.Diff(want, f.done); diff != "" {
		t.Error(diff)
	}
	for _, dir := range []string{"rw/u", "rw/w"} {
		if _, err := os.Stat(filepath.Join(f.run, dir)); err != nil {
			t.Error(err)
		}
	}
}

func TestFailedMountUndoesThoseBefore(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	f.answers["mount tmpfs tmpfs run/c"] = []error{unix.ENOMEM}
	err := f.Mount(t.Context(), []*api.Storage{
		f.disk(virtioBlk, "01/1e", "ext4", "a"), f.disk("tmpfs", "", "", "b"), f.disk("tmpfs", "", "", "c"),
	})
	if err == nil || !strings.Contains(err.Error(), "run/c: mount tmpfs tmpfs: cannot allocate memory") {
		t.Error(err)
	}
	want := []string{"mount ext4 dev/vda run/a", "mount tmpfs tmpfs run/b", "mount tmpfs tmpfs run/c", "unmount run/b", "unmount run/a"}
	if diff := cmp.Diff(want, f.done); diff != "" {
		t.Error(diff)
	}
}

func TestUnmountWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.blk(t, "1e", "vda", "254:0")
		s := []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "a")}
		must(t, f.Mount(t.Context(), s))
		f.held["vda"] = true
		f.answers["unmount run/a"] = []error{unix.EBUSY, unix.EBUSY}
		const after = 100 * time.Millisecond
		time.AfterFunc(after, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.held["vda"] = false
		})
		began := time.Now()
		must(t, f.Unmount(s))
		if took := time.Since(began); took < after || took > after+unmountPoll {
			t.Errorf("took %v, released after %v", took, after)
		}
	})
}

func TestUnmountOfOneOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.blk(t, "1e", "vda", "254:0")
		f.held["vda"] = true
		a, b := []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "a")}, []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "b")}
		must(t, f.Mount(t.Context(), a))
		must(t, f.Mount(t.Context(), b))
		if err := f.Mount(t.Context(), b); !errdefs.IsAlreadyExists(err) {
			t.Errorf("the same target again: %v", err)
		}
		began := time.Now()
		must(t, f.Unmount(a))
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %v for a disk that is still used", took)
		}
		if err := f.Unmount(b); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("the last one: %v", err)
		}
	})
}

func TestUnmountTellsWhoHoldsADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.blk(t, "1e", "vda", "254:0")
		f.process(t, "1", "init", "mnt:[1]", nil, "30 1 0:5 / / rw - tmpfs tmpfs rw")
		f.process(t, "7", "sh", "mnt:[2]", nil, "31 1 254:0 / /data rw - ext4 /dev/vda rw")
		f.process(t, "8", "sh", "mnt:[2]", nil, "31 1 254:0 / /data rw - ext4 /dev/vda rw")
		s := []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "a")}
		must(t, f.Mount(t.Context(), s))
		f.held["vda"] = true
		began := time.Now()
		err := f.Unmount(s)
		if !errdefs.IsFailedPrecondition(err) || !strings.HasSuffix(strings.SplitN(err.Error(), " (failed", 2)[0], "process 7 (sh) has it on /data") {
			t.Error(err)
		}
		if took := time.Since(began); took != unmountWait {
			t.Errorf("waited %v, want %v", took, unmountWait)
		}
		f.held["vda"] = false
		f.answers["unmount run/a"] = []error{unix.EINVAL}
		must(t, f.Unmount(s)) // It may be tried again.
		if len(f.disks) != 0 {
			t.Errorf("remembered: %v", f.disks)
		}
	})
}

func TestUnmountOfADiskThatIsGone(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	s := []*api.Storage{f.disk(virtioBlk, "01/1e", "ext4", "a")}
	must(t, f.Mount(t.Context(), s))
	must(t, os.Remove(filepath.Join(f.dev, "vda")))
	must(t, f.Unmount(s))
	if len(f.disks) != 0 {
		t.Errorf("remembered: %v", f.disks)
	}
}

func TestBusyMounts(t *testing.T) {
	busy := []error{}
	for range 2 * unmountWait / unmountPoll {
		busy = append(busy, unix.EBUSY)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.process(t, "7", "sh", "mnt:[2]", map[string]string{"cwd": "/", "fd/3": f.run + "/a/x"}, "")
		f.process(t, "self", "init", "mnt:[1]", nil, "30 1 0:5 / "+f.run+"/a/b rw - tmpfs tmpfs rw")
		f.answers["unmount run/a"], f.answers["unmount run/t"] = busy, busy
		storages := []*api.Storage{
			f.disk("overlay", "", "", "a", "lowerdir="+f.run+"/l"), f.disk("tmpfs", "", "", "t"),
		}
		must(t, f.Mount(t.Context(), storages))
		err := f.Unmount(storages)
		for _, want := range []string{"run/a: device or resource busy: ", "a/b is mounted on it, process 7 (sh) has ", "run/a/x"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if last := f.done[len(f.done)-1]; last != "unmount run/a" || !strings.Contains(strings.Join(f.done, ","), "detach run/t") {
			t.Error(f.done)
		}
	})
}

// process makes a process in the machine's proc.
func (f *fakeMachine) process(t *testing.T, pid, comm, ns string, links map[string]string, mountinfo string) {
	t.Helper()
	dir := filepath.Join(f.proc, pid)
	f.write(t, dir+"/comm", comm+"\n")
	f.write(t, dir+"/mountinfo", mountinfo+"\n")
	all := map[string]string{"ns/mnt": ns}
	for name, to := range links {
		all[name] = to
	}
	for name, to := range all {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.Symlink(to, filepath.Join(dir, name)))
	}
}

func FuzzOverlayDirs(f *testing.F) {
	f.Add("lowerdir=/a:/b,upperdir=/u,workdir=/w")
	f.Add(`lowerdir=/a\:b,upperdir=,lowerdir+=/c`)
	f.Fuzz(func(t *testing.T, data string) {
		o, err := overlayDirs(data)
		if err != nil {
			return
		}
		for _, dir := range o.all() {
			if dir != "" && !strings.Contains(data, dir) || strings.ContainsAny(dir, ",\\") {
				t.Errorf("%q: directory %q", data, dir)
			}
		}
	})
}
