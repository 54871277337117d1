package container

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// The guest has mounted what a container binds from below /proc and /sys.
func TestKernelFilesystemsAreMountedForBinds(t *testing.T) {
	bind := func(sources ...string) (mounts []specs.Mount) {
		for _, s := range sources {
			mounts = append(mounts, specs.Mount{Destination: s, Type: "bind", Source: s, Options: []string{"rbind"}})
		}
		return mounts
	}
	for name, tt := range map[string]struct {
		mounts []specs.Mount
		want   string
	}{
		"none":       {bind("/run/share/1", "/sys", "/sys/kernel", "/proc/self"), ""},
		"debug":      {bind("/sys/kernel/debug"), "debugfs"},
		"below":      {bind("/sys/kernel/debug/tracing"), "debugfs"},
		"unclean":    {bind("/sys/kernel/../fs/bpf/"), "bpf"},
		"twice":      {bind("/sys/fs/bpf", "/sys/fs/bpf/maps"), "bpf"},
		"longer":     {bind("/sys/fs/bpfs", "/sys/kernel/debugger/x"), ""},
		"all":        {bind("/sys/kernel/tracing", "/sys/kernel/security", "/sys/kernel/config", "/sys/fs/fuse/connections", "/proc/sys/fs/binfmt_misc"), "binfmt_misc fusectl configfs securityfs tracefs"},
		"not a bind": {[]specs.Mount{{Destination: "/sys/kernel/debug", Type: "debugfs", Source: "/sys/kernel/debug"}}, ""},
	} {
		var got []string
		k := kernelMounts{mount: func(fs kernelFS) error {
			got = append(got, fs.fstype)
			return nil
		}}
		k.provide(tt.mounts)
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	logged := test.NewGlobal()
	defer logged.Reset()
	k := kernelMounts{mount: func(kernelFS) error { return unix.EPERM }}
	k.provide(bind("/sys/kernel/debug"))
	if last := logged.LastEntry(); last == nil || !strings.Contains(last.Message, "debugfs cannot be mounted at the guest's /sys/kernel/debug") {
		t.Errorf("of a mount that fails: %+v", last)
	}
}

// Each is mounted once, at its place, as it is on a host. The mounts are those of a
// thread with its own mount namespace.
func TestKernelFilesystemsAreMounted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	err = ownthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		for _, fs := range kernelFilesystems {
			if !slices.Contains(strings.Fields(string(known)), fs.fstype) {
				continue // Opening it would load a module of this host's.
			}
			if err := mountTwice(fs); err != nil {
				t.Errorf("%s: %v", fs.fstype, err)
			}
		}
		return nil
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip("no mount namespace: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mountTwice(fs kernelFS) error {
	for { // The host's, of which there may be several.
		mounted, err := isMountpoint(fs.place)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		if err := unix.Unmount(fs.place, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	k := new(kernelMounts)
	mounts := []specs.Mount{{Destination: "/x", Type: "bind", Source: fs.place}}
	for range 2 {
		k.provide(mounts)
	}
	// Of this thread, which has its own mounts.
	table, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		return err
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[1] == fs.place {
			found = append(found, f[2]+" "+f[3])
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], fs.fstype+" rw,nosuid,nodev,noexec") {
		return errors.New("mounted: " + strings.Join(found, "; "))
	}
	if fs.fstype == "bpf" && !strings.Contains(found[0], "mode=700") {
		return errors.New("every user may use it: " + found[0])
	}
	return nil
}
