package command

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestSetUser(t *testing.T) {
	for _, tt := range []struct {
		user string
		gids []int
		want specs.User
		err  string
	}{
		{"7:8", []int{0, 4294967295}, specs.User{UID: 7, GID: 8, AdditionalGids: []uint32{1, 0, 4294967295}}, ""},
		{"", []int{-1}, specs.User{}, "--additional-gids -1"},
		{"", []int{1 << 32}, specs.User{}, "--additional-gids 4294967296"},
		{"-1", nil, specs.User{}, `--user "-1"`},
		{"1:root", nil, specs.User{}, `--user "1:root"`},
	} {
		p := &specs.Process{User: specs.User{AdditionalGids: []uint32{1}}}
		err := setUser(p, tt.user, tt.gids)
		switch {
		case tt.err == "" && (err != nil || !cmp.Equal(p.User, tt.want)):
			t.Errorf("user %q, groups %v: %+v, %v", tt.user, tt.gids, p.User, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("user %q, groups %v: %v, want %s", tt.user, tt.gids, err, tt.err)
		}
	}
}

// As with runc, a capability is ambient, too, if the container has an inheritable
// set: a process of another user than root has it only then.
func TestAddCapabilities(t *testing.T) {
	has, adds := []string{"CAP_KILL"}, []string{"CAP_KILL", "CAP_SYS_TIME"}
	p := &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: has}}
	addCapabilities(p, adds)
	want := &specs.LinuxCapabilities{Bounding: adds, Effective: adds, Permitted: adds}
	if diff := cmp.Diff(want, p.Capabilities); diff != "" {
		t.Error(diff)
	}
	p.Capabilities = &specs.LinuxCapabilities{Inheritable: has}
	addCapabilities(p, adds)
	want = &specs.LinuxCapabilities{Bounding: adds, Effective: adds, Permitted: adds, Inheritable: has, Ambient: adds}
	if diff := cmp.Diff(want, p.Capabilities); diff != "" {
		t.Error(diff)
	}
}
