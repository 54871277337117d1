package guestspec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// What a container may make in a volume is what its capabilities allow: those that its
// processes may ever have. Mounts below a read-only volume may be writable.
func TestSpecialFilesOfBinds(t *testing.T) {
	user := []specs.LinuxNamespace{{Type: specs.UserNamespace}}
	for name, test := range map[string]struct {
		capabilities       *specs.LinuxCapabilities
		namespaces         []specs.LinuxNamespace
		option             string
		devices, fileRight bool
	}{
		"no capabilities":     {option: "rw"},
		"others":              {capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN"}, Effective: []string{"CAP_MKNOD"}}, option: "rw"},
		"both":                {capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_MKNOD", "CAP_SETFCAP"}}, option: "rw", devices: true, fileRight: true},
		"devices":             {capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_MKNOD"}}, option: "rw", devices: true},
		"of files":            {capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_SETFCAP"}}, option: "rw", fileRight: true},
		"both, read-only":     {capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_MKNOD", "CAP_SETFCAP"}}, option: "ro", devices: true, fileRight: true},
		"in a user namespace": {capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_MKNOD", "CAP_SETFCAP"}}, namespaces: user, option: "rw", fileRight: true},
	} {
		binds := listed(t, &specs.Spec{
			Process: &specs.Process{Capabilities: test.capabilities}, Linux: &specs.Linux{Namespaces: test.namespaces},
			Mounts: []specs.Mount{{Destination: "/a", Type: "bind", Source: "/a", Options: []string{"rbind", test.option}}},
		}, none)
		if len(binds) != 1 || binds[0].Devices != test.devices || binds[0].FileCapabilities != test.fileRight {
			t.Errorf("%s: %+v", name, binds)
		}
	}
}
