package hostcgroup

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /outer/inner /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
42 31 0:39 / /elsewhere/pids rw,relatime - cgroup cgroup rw,pids
short - line
`

func TestMounts(t *testing.T) {
	var got []string
	for _, h := range mounts([]byte(hybrid), "/sys/fs/cgroup", false) {
		got = append(got, h.mount)
	}
	want := []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	v2 := mounts([]byte(hybrid), "/sys/fs/cgroup/unified", true)
	if len(v2) != 1 || v2[0].mount != "/sys/fs/cgroup/unified" || !v2[0].unified {
		t.Errorf("v2: %+v", v2)
	}
}

func TestHierarchyProperties(t *testing.T) {
	const self = "9:name=systemd:/init.scope\n4:memory:/outer/inner/x\n1:cpu,cpuacct:/../gone\n0::/a:b\n"
	for i, want := range []struct {
		home            string
		memory, threads bool
	}{
		{"/sys/fs/cgroup/cpu,cpuacct", false, true}, // out of sight
		{"/sys/fs/cgroup/memory/x", true, false},
		{"/sys/fs/cgroup/systemd/init.scope", false, false},
	} {
		h := mounts([]byte(hybrid), "/sys/fs/cgroup", false)[i]
		if home := h.of([]byte(self)); home != want.home {
			t.Errorf("home in %s is %s, want %s", h.mount, home, want.home)
		}
		if h.limitsMemory() != want.memory || h.has(threadControllers...) != want.threads {
			t.Errorf("%+v: memory %v, threads %v", h, h.limitsMemory(), h.has(threadControllers...))
		}
	}
	v2 := mounts([]byte(hybrid), "/sys/fs/cgroup/unified", true)[0]
	if home := v2.of([]byte(self)); home != "/sys/fs/cgroup/unified/a:b" {
		t.Errorf("home in v2 is %s", home)
	}
}

func TestNoHierarchy(t *testing.T) {
	if _, err := New(Options{Root: t.TempDir(), Path: "/p/c", Name: "s"}); !errdefs.IsNotFound(err) {
		t.Errorf("a root without cgroups: %v", err)
	}
	if _, err := New(Options{Root: "/no/such/place", Path: "/p/c", Name: "s"}); err == nil {
		t.Error("a root that is not there was taken")
	}
}
