package rootfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

func TestUnsupported(t *testing.T) {
	mounts := func(list ...*configs.Mount) func(c *configs.Config) {
		return func(c *configs.Config) { c.Mounts = list }
	}
	hooks := func(name configs.HookName) func(c *configs.Config) {
		return func(c *configs.Config) { c.Hooks = configs.Hooks{name: {configs.NewFunctionHook(nil)}} }
	}
	propagation := func(flags int) func(c *configs.Config) {
		return func(c *configs.Config) { c.RootPropagation = flags }
	}
	for name, test := range map[string]struct {
		change func(c *configs.Config)
		want   string
	}{
		"nothing":           {func(*configs.Config) {}, ""},
		"typical mounts":    {mounts(procAt("/proc"), &configs.Mount{Device: "cgroup"}, bindOf("/a", "/b", unix.MS_REMOUNT)), ""},
		"private":           {propagation(unix.MS_PRIVATE), ""},
		"recursively slave": {propagation(unix.MS_SLAVE | unix.MS_REC), ""},
		"prestart hook":     {hooks(configs.Prestart), ""},
		"other masks":       {func(c *configs.Config) { c.MaskPaths = []string{"/proc/keys"} }, ""},
		"user namespace":    {func(c *configs.Config) { c.Namespaces.Add(configs.NEWUSER, "") }, "a user namespace"},
		"no namespace":      {func(c *configs.Config) { c.Namespaces = nil }, "no mount namespace of the container"},
		"joined namespace": {
			func(c *configs.Config) { c.Namespaces = configs.Namespaces{{Type: configs.NEWNS, Path: "/x"}} },
			"no mount namespace of the container",
		},
		"no pivot":              {func(c *configs.Config) { c.NoPivotRoot = true }, "a root without pivot_root"},
		"rootless":              {func(c *configs.Config) { c.RootlessEUID = true }, "a rootless container"},
		"rootless cgroups":      {func(c *configs.Config) { c.RootlessCgroups = true }, "a rootless container"},
		"label":                 {func(c *configs.Config) { c.MountLabel = "x" }, "a mount label"},
		"shared":                {propagation(unix.MS_SHARED | unix.MS_REC), "the root's propagation"},
		"unbindable":            {propagation(unix.MS_UNBINDABLE), "the root's propagation"},
		"private and slave":     {propagation(unix.MS_PRIVATE | unix.MS_SLAVE), "the root's propagation"},
		"recursive and no more": {propagation(unix.MS_REC), "the root's propagation"},
		"create hook":           {hooks(configs.CreateContainer), "hooks in the container"},
		"start hook":            {hooks(configs.StartContainer), "hooks in the container"},
		"mask of the process":   {func(c *configs.Config) { c.MaskPaths = []string{"/proc//self/maps"} }, "a path in /proc/self"},
		"path of the thread":    {func(c *configs.Config) { c.ReadonlyPaths = []string{"/proc/thread-self"} }, "a path in /proc/self"},
		"mask of a link":        {func(c *configs.Config) { c.MaskPaths = []string{"/proc/mounts"} }, "a path in /proc/self"},
		"path behind a link":    {func(c *configs.Config) { c.ReadonlyPaths = []string{"proc/net/../net/dev"} }, "a path in /proc/self"},
		"similar names":         {func(c *configs.Config) { c.MaskPaths = []string{"/proc/netx", "/proc/selfish", "/net"} }, ""},
		"volume of itself":      {mounts(bindOf("/proc/self/comm", "/c", 0)), "a path in /proc/self"},
		"volume of a link":      {mounts(bindOf("/proc/./mounts", "/m", unix.MS_REC)), "a path in /proc/self"},
		"volume of the network": {mounts(bindOf("/a", "/b", 0), bindOf("/proc/net/dev", "/n", 0)), "a path in /proc/self"},
		"other volumes":         {mounts(bindOf("/proc/1/comm", "/proc/self", 0), bindOf("/proc/meminfo", "/m", 0), bindOf("/proc", "/p", unix.MS_REC)), ""},
		"no volume":             {mounts(&configs.Mount{Device: "tmpfs", Source: "/proc/self"}), ""},
		"id mapping":            {mounts(&configs.Mount{IDMapping: &configs.MountIDMapping{}}), "an id-mapped mount"},
		"copied up":             {mounts(&configs.Mount{Device: "tmpfs", Extensions: configs.EXT_COPYUP}), "a tmpfs with tmpcopyup"},
		"remounted proc":        {mounts(&configs.Mount{Device: "proc", Flags: unix.MS_REMOUNT}), "a remount of proc or cgroup"},
		"two procs":             {mounts(procAt("/proc"), procAt("/proc2")), "two mounts of proc"},
		"two cgroups":           {mounts(&configs.Mount{Device: "cgroup"}, &configs.Mount{Device: "cgroup2"}), "two mounts of cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &configs.Config{Namespaces: configs.Namespaces{{Type: configs.NEWNS}}}
			test.change(config)
			if got := Unsupported(config, ""); got != test.want {
				t.Errorf("reason is %q, want %q", got, test.want)
			}
		})
	}
}

func TestInner(t *testing.T) {
	config := &configs.Config{Mounts: []*configs.Mount{
		{Source: "cgroup", Device: "cgroup", Destination: "/sys/fs/cgroup", Flags: unix.MS_RDONLY, Data: "nsdelegate"},
		tmpfsAt("/tmp", 0, ""),
		{Source: "p", Device: "proc", Destination: "/proc", Flags: unix.MS_NOSUID},
	}}
	want := []InnerMount{
		{Source: "cgroup", Type: "cgroup2", Flags: unix.MS_RDONLY, Data: "nsdelegate", Destination: "/sys/fs/cgroup"},
		{Source: "p", Type: "proc", Flags: unix.MS_NOSUID, Destination: "/proc"},
	}
	if diff := cmp.Diff(want, Inner(config)); diff != "" {
		t.Errorf("mounts differ (-want +got):\n%s", diff)
	}
}
