package guestspec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func bind(source, destination string, options ...string) specs.Mount {
	return specs.Mount{Destination: destination, Type: "bind", Source: source, Options: options}
}

// filteredMounts are the mounts of the guest's spec for a host's with these.
func filteredMounts(t *testing.T, mounts []specs.Mount) ([]specs.Mount, *Guest) {
	t.Helper()
	host := hostSpec()
	host.Mounts = mounts
	g, err := Filter(host, Paths{}, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	var got specs.Spec
	if err := json.Unmarshal(g.JSON, &got); err != nil {
		t.Fatal(err)
	}
	return got.Mounts, g
}

// ownCgroup is the mount of a container's own cgroup in place of a bind.
func ownCgroup(access string) specs.Mount {
	return specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", access}}
}

// A container with a bind of the host's cgroups has its own there.
func TestCgroupBind(t *testing.T) {
	for name, test := range map[string]struct{ mount, want specs.Mount }{
		"writable":          {bind("/sys/fs/cgroup", "/sys/fs/cgroup", "rbind", "rprivate", "rw"), ownCgroup("rw")},
		"read-only":         {bind("/sys/fs/cgroup", "/sys/fs/cgroup", "rbind", "ro", "rslave"), ownCgroup("ro")},
		"recursively":       {bind("/sys/fs/cgroup", "/sys/fs/cgroup", "rbind", "rro"), ownCgroup("ro")},
		"no options":        {bind("/sys/fs/cgroup/", "/sys/fs/cgroup"), ownCgroup("rw")},
		"no type":           {specs.Mount{Source: "/sys/fs/cgroup", Destination: "/sys/fs/cgroup", Options: []string{"bind"}}, ownCgroup("rw")},
		"elsewhere":         {bind("/sys/fs/cgroup", "/host/cgroup", "bind"), bind("/sys/fs/cgroup", "/host/cgroup", "bind")},
		"one of v1":         {bind("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory", "bind"), bind("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory", "bind")},
		"of another source": {bind("/sys", "/sys/fs/cgroup", "bind"), bind("/sys", "/sys/fs/cgroup", "bind")},
	} {
		got, _ := filteredMounts(t, []specs.Mount{test.mount})
		if diff := cmp.Diff([]specs.Mount{test.want}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A container to which an engine gives systemd's cgroup v1 hierarchy of the host has a
// writable cgroup v2 instead.
func TestSystemdHierarchy(t *testing.T) {
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}}
	cgroup := specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"rprivate", "nosuid", "ro"}}
	writable := cgroup
	writable.Options = []string{"rprivate", "nosuid", "rw"}
	systemd := func(destination string, options ...string) specs.Mount {
		return bind("/sys/fs/cgroup/systemd", destination, options...)
	}
	for name, test := range map[string]struct {
		mounts, want []specs.Mount
		dropped      string
	}{
		"none":      {[]specs.Mount{sys, cgroup}, []specs.Mount{sys, cgroup}, ""},
		"Podman":    {[]specs.Mount{sys, cgroup, systemd("/sys/fs/cgroup/systemd", "bind", "rprivate")}, []specs.Mount{sys, writable}, "cgroup v2 is writable"},
		"CRI-O":     {[]specs.Mount{systemd("/sys/fs/cgroup/systemd/", "bind", "nodev"), cgroup}, []specs.Mount{writable}, "cgroup v2 is writable"},
		"no cgroup": {[]specs.Mount{sys, systemd("/sys/fs/cgroup/systemd", "bind")}, []specs.Mount{sys}, "systemd's cgroup v1 hierarchy"},
		"read-only": {[]specs.Mount{cgroup, systemd("/sys/fs/cgroup/systemd", "bind", "ro")}, []specs.Mount{cgroup}, "systemd's cgroup v1 hierarchy"},
		"all, too": {
			[]specs.Mount{bind("/sys/fs/cgroup", "/sys/fs/cgroup", "rbind", "ro"), systemd("/sys/fs/cgroup/systemd", "bind")},
			[]specs.Mount{ownCgroup("rw")}, "cgroup v2 is writable",
		},
		"elsewhere": {[]specs.Mount{cgroup, systemd("/x", "bind")}, []specs.Mount{cgroup, systemd("/x", "bind")}, ""},
	} {
		got, g := filteredMounts(t, test.mounts)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		says := func(dropped string) bool {
			return strings.Contains(dropped, "systemd") && strings.Contains(dropped, test.dropped)
		}
		if slices.ContainsFunc(g.Dropped, says) != (test.dropped != "") {
			t.Errorf("%s: dropped %q", name, g.Dropped)
		}
	}
}
