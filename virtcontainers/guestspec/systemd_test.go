package guestspec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// A container to which an engine gives systemd's cgroup v1 hierarchy of the host has a
// writable cgroup v2 instead.
func TestSystemdHierarchy(t *testing.T) {
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}}
	cgroup := specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"rprivate", "nosuid", "ro"}}
	writable := cgroup
	writable.Options = []string{"rprivate", "nosuid", "rw"}
	systemd := func(destination string, options ...string) specs.Mount {
		return specs.Mount{Destination: destination, Type: "bind", Source: "/sys/fs/cgroup/systemd", Options: options}
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
		"elsewhere": {[]specs.Mount{cgroup, systemd("/x", "bind")}, []specs.Mount{cgroup, systemd("/x", "bind")}, ""},
	} {
		host := hostSpec()
		host.Mounts = test.mounts
		g, err := Filter(host, Paths{}, Rules{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got specs.Spec
		if err := json.Unmarshal(g.JSON, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got.Mounts); diff != "" {
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
