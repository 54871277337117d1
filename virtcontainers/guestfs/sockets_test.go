package guestfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/reverse"
)

func TestHostUser(t *testing.T) {
	user := specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{0, 70_000}}
	mapped := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 1000}, {ContainerID: 1000, HostID: 500_000, Size: 2}}
	for name, test := range map[string]struct {
		spec specs.Spec
		want reverse.User
	}{
		"the host's ids": {specs.Spec{Process: &specs.Process{User: user}, Linux: &specs.Linux{}}, reverse.User{UID: 1000, GID: 1001, Groups: []uint32{0, 70_000}}},
		"user namespace": {
			specs.Spec{Process: &specs.Process{User: user}, Linux: &specs.Linux{UIDMappings: mapped, GIDMappings: mapped}},
			reverse.User{UID: 500_000, GID: 500_001, Groups: []uint32{100_000, overflowID}},
		},
		"no process": {specs.Spec{}, reverse.User{UID: overflowID, GID: overflowID}},
	} {
		if diff := cmp.Diff(test.want, hostUser(&test.spec)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
