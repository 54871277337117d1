package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestDropBindData(t *testing.T) {
	mounts := []specs.Mount{
		{Destination: "/dev/shm", Type: "bind", Source: "/s", Options: []string{"rbind", "rprivate", "size=67108864"}},
		{Destination: "/data", Source: "/s", Options: []string{"bind", "ro", "z", "nosuid", "", "defaults"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m", "mode=1777"}},
	}
	dropped := dropBindData(mounts)
	if diff := cmp.Diff([]string{`"size=67108864" at /dev/shm`, `"z" at /data`, `"" at /data`}, dropped); diff != "" {
		t.Error(diff)
	}
	want := []specs.Mount{
		{Destination: "/dev/shm", Type: "bind", Source: "/s", Options: []string{"rbind", "rprivate"}},
		{Destination: "/data", Source: "/s", Options: []string{"bind", "ro", "nosuid", "defaults"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m", "mode=1777"}},
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
}

// A kernel that does not know noswap must not see it, and one that knows it shows it.
func TestFitNoswap(t *testing.T) {
	mounts := func() []specs.Mount {
		return []specs.Mount{
			{Destination: "/tmp", Type: "tmpfs", Options: []string{"noswap", "size=1m", "noswap"}},
			{Destination: "/run", Type: "tmpfs", Options: []string{"size=1m"}},
			{Destination: "/data", Type: "ext4", Options: []string{"noswap"}},
		}
	}
	want := mounts()
	want[0].Options = []string{"size=1m"}
	old := mounts()
	fitNoswap(old, func() bool { return false })
	if diff := cmp.Diff(want, old); diff != "" {
		t.Error(diff)
	}
	recent := mounts()
	fitNoswap(recent, func() bool { return true })
	if diff := cmp.Diff(mounts(), recent); diff != "" {
		t.Error(diff)
	}
	fitNoswap(mounts()[1:], func() bool { t.Error("the kernel is asked for no mount"); return true })
}

// A tmpfs without a size holds what the container may use, where Linux would give it less.
func TestFitTmpfs(t *testing.T) {
	const gib = 1 << 30
	tmpfs := func(options ...string) specs.Mount {
		return specs.Mount{Destination: "/ram", Type: "tmpfs", Source: "tmpfs", Options: options}
	}
	limit := func(bytes int64) *specs.LinuxResources {
		return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &bytes}}
	}
	large := limit(8 * gib)
	for name, test := range map[string]struct {
		mount  specs.Mount
		limits *specs.LinuxResources
		want   []string
	}{
		"large":         {tmpfs("nosuid"), large, []string{"nosuid", "size=8589934592", "nr_inodes=2097152"}},
		"no options":    {tmpfs(), large, []string{"size=8589934592", "nr_inodes=2097152"}},
		"all":           {tmpfs(), limit(100 * gib), []string{"size=10737418240", "nr_inodes=2621440"}},
		"small":         {tmpfs("nosuid"), limit(5 * gib), []string{"nosuid"}},
		"no limit":      {tmpfs("nosuid"), nil, []string{"nosuid"}},
		"not of memory": {tmpfs("nosuid"), &specs.LinuxResources{}, []string{"nosuid"}},
		"unlimited":     {tmpfs("nosuid"), limit(-1), []string{"nosuid"}},
		"sized":         {tmpfs("size=1m", "mode=755"), large, []string{"size=1m", "mode=755"}},
		"percent":       {tmpfs("size=50%"), large, []string{"size=50%"}},
		"blocks":        {tmpfs("nr_blocks=7"), large, []string{"nr_blocks=7"}},
		"files":         {tmpfs("nr_inodes=9"), large, []string{"nr_inodes=9", "size=8589934592"}},
		"change":        {tmpfs("remount", "ro"), large, []string{"remount", "ro"}},
		"bind":          {tmpfs("bind"), large, []string{"bind"}},
		"other":         {specs.Mount{Destination: "/x", Type: "ramfs", Options: []string{"nosuid"}}, large, []string{"nosuid"}},
	} {
		mounts := []specs.Mount{test.mount}
		fitTmpfs(mounts, test.limits, 10*gib)
		if diff := cmp.Diff(test.want, mounts[0].Options); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What a mount of the option says is what the kernel is asked.
func TestTakesNoswap(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "noswap")
	if err == nil {
		defer unix.Unmount(dir, 0)
	}
	if got := takesNoswap(); got != (err == nil) {
		t.Errorf("%t, and the mount: %v", got, err)
	}
}

// libcontainer refuses the mount as the engine sent it, and takes what is left.
func TestBindDataIsRefusedByLibcontainer(t *testing.T) {
	for _, drop := range []bool{false, true} {
		spec := specconv.Example()
		spec.Root.Path = "/"
		spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}}
		spec.Mounts = []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: "/tmp", Options: []string{"rbind", "size=1", "defaults"}}}
		spec.Hostname, spec.Linux.Resources = "", nil
		spec.Linux.ReadonlyPaths, spec.Linux.MaskedPaths = nil, nil
		if drop {
			dropBindData(spec.Mounts)
		}
		config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: "c", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		_, err = libcontainer.Create(t.TempDir(), "c", config)
		if (err == nil) != drop {
			t.Errorf("dropped %v: %v", drop, err)
		}
	}
}

// In a user namespace a sysfs becomes a bind mount, which may follow a link: the image
// would choose where the container has it.
func TestCheckSysfs(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "sys"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": "/sys", "dir": "/", "out": t.TempDir()} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	users := []specs.LinuxNamespace{{Type: specs.UserNamespace}}
	refused := `mount at %s: filesystem "sysfs" must be mounted on ordinary directory`
	for _, test := range []struct {
		namespaces  []specs.LinuxNamespace
		destination string
		refused     bool
	}{
		{users, "/sys", false}, {users, "/dir/sys/", false}, {users, "/missing/sys", false}, {users, "/file", true},
		{users, "/link", true}, {users, "link", true}, {users, "/dir/link", true}, {users, "/out", true},
		{users, "/link/", true}, {nil, "/link", false}, // of these libcontainer decides
	} {
		spec := &specs.Spec{
			Root: &specs.Root{Path: root}, Linux: &specs.Linux{Namespaces: test.namespaces},
			Mounts: []specs.Mount{{Destination: "/link", Type: "tmpfs"}, {Destination: test.destination, Type: "sysfs", Source: "sysfs"}},
		}
		want := ""
		if test.refused {
			want = fmt.Sprintf(refused, test.destination)
		}
		if err := checkSysfs(spec); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: error %v, want %q", test.destination, err, want)
		}
	}
}

// A source that only the host has is named, with where it was looked for.
func TestCheckSources(t *testing.T) {
	for source, missing := range map[string]bool{
		"/dev/null": false, "/proc/self/status": false, "/sys": false, "/no/such/share": false,
		"/dev/no-such": true, "/proc/./no-such": true, "/sys/no-such/x": true,
	} {
		err := checkSources([]specs.Mount{
			{Destination: "/tmp", Type: "tmpfs", Source: "/dev/no-such"},
			{Destination: "/data", Type: "bind", Source: source},
		})
		if missing && (!errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "mount at /data: the guest has no "+source)) || !missing && err != nil {
			t.Errorf("%s: %v, want an error: %v", source, err, missing)
		}
	}
}
