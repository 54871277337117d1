package guestspec

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// inNamespaces returns a container's spec with those namespaces, given as kind
// or kind=path, and those that every engine requests.
func inNamespaces(words ...string) *specs.Spec {
	spec := &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{
		Namespaces: []specs.LinuxNamespace{{Type: specs.NetworkNamespace}, {Type: specs.MountNamespace}},
	}}
	for _, word := range words {
		kind, path, _ := strings.Cut(word, "=")
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: path})
	}
	return spec
}

// Which namespaces a pod's other containers share.
func TestSharedNamespaces(t *testing.T) {
	for _, test := range []struct {
		name       string
		namespaces []string
		hostname   string
		pid, uts   bool
		pidOf      int
		dropped    string
	}{
		{"own", []string{"pid", "ipc", "uts"}, "", false, false, 0, ""},
		{"own with a name", []string{"pid", "ipc", "uts"}, "c", false, true, 0, ""},
		{"the pod's", []string{"pid=/proc/77/ns/pid", "ipc=/proc/77/ns/ipc", "uts=/proc/77/ns/uts"}, "c", true, false, 77, ""},
		{"pinned ones", []string{"pid=/run/ns/p", "ipc=/run/ns/i", "uts=/run/ns/u"}, "c", true, false, 0, ""},
		{"the host's", nil, "", true, false, 0, "processes IPC UTS"},
		{"the first process's", []string{"pid=/proc/1/ns/pid", "ipc", "uts=/proc/1/ns/uts"}, "c", true, false, 0, "processes UTS"},
	} {
		spec := inNamespaces(test.namespaces...)
		spec.Hostname = test.hostname
		g, err := Filter(spec, Paths{}, Rules{HostNamespaces: true})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if g.SharePID != test.pid || g.OwnUTS != test.uts || g.PIDOf != test.pidOf {
			t.Errorf("%s: shares PID %v of %d, own UTS %v", test.name, g.SharePID, g.PIDOf, g.OwnUTS)
		}
		if want := strings.Fields(test.dropped); len(g.Dropped) != len(want) {
			t.Errorf("%s: dropped %q", test.name, g.Dropped)
		}
		for _, word := range strings.Fields(test.dropped) {
			if !slices.ContainsFunc(g.Dropped, func(s string) bool { return strings.Contains(s, word) }) {
				t.Errorf("%s: dropped %q, want %s", test.name, g.Dropped, word)
			}
		}
	}
}

// The host's PID and IPC namespaces are refused by name, for a pod's first
// container and for the others; its UTS namespace is copied.
func TestNamespacesOfTheHost(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, test := range []struct {
			kind       string
			namespaces []string
		}{
			{"pid", []string{"ipc", "uts"}},
			{"ipc", []string{"pid", "uts"}},
			{"pid", []string{"ipc", "uts", "pid=/proc/1/ns/pid"}},
			{"ipc", []string{"pid", "ipc=/proc/1/ns/ipc"}},
			{"pid", []string{"ipc", "uts", "pid=/proc/self/ns/pid"}},
			{"ipc", []string{"pid", "ipc=/proc/thread-self/ns/ipc"}},
		} {
			kind, namespaces := test.kind, test.namespaces
			_, err := Filter(inNamespaces(namespaces...), Paths{}, Rules{First: first})
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), kind+" namespace") || !strings.Contains(err.Error(), "allow_host_namespaces") {
				t.Errorf("%q: %v, want an error that names the %s namespace", namespaces, err, kind)
			}
		}
		g, err := Filter(inNamespaces("pid", "ipc"), Paths{}, Rules{First: first})
		if err != nil || g.OwnUTS || len(g.Dropped) != 1 {
			t.Errorf("the host's UTS namespace: %+v, %v", g, err)
		}
	}
}

// The first container of a pod cannot join another container's namespaces: that
// one is in another virtual machine.
func TestNamespacesOfAnotherMachine(t *testing.T) {
	for _, kind := range []string{"pid", "ipc", "uts"} {
		spec := inNamespaces(slices.DeleteFunc([]string{"pid", "ipc", "uts"}, func(k string) bool { return k == kind })...)
		path := "/proc/77/ns/" + kind
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: path})
		_, err := Filter(spec, Paths{}, Rules{First: true})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), kind+" namespace") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, namespaces := range [][]string{{"pid=/run/ns/p", "ipc=/run/ns/i", "uts=/run/ns/u"}, {"pid", "ipc", "uts"}, {"pid=/proc/1/ns/pid"}, nil} {
		g, err := Filter(inNamespaces(namespaces...), Paths{}, Rules{First: true, HostNamespaces: true})
		if err != nil || g.SharePID || g.OwnUTS || g.PIDOf != 0 {
			t.Errorf("%q: %+v, %v", namespaces, g, err)
		}
	}
	for _, kind := range []string{"time", "cgroup"} {
		if _, err := Filter(inNamespaces("pid", "ipc", kind+"=/run/ns/x"), Paths{}, Rules{}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Nor can it join another's user namespace; it had a new one without a word. One that
// the engine has pinned is the pod's, and other containers join their pod's. Docker
// adds the user namespace of the container whose network is joined.
func TestUserNamespaceOfAnotherMachine(t *testing.T) {
	for _, test := range []struct {
		first     bool
		user, net string
		refused   bool
		dropped   int
	}{
		{true, "/proc/77/ns/user", "", true, 0},
		{true, "/proc/77/ns/user", "/proc/78/ns/net", true, 0},
		{true, "/proc/77/ns/user", "/proc/77/ns/net", false, 1},
		{true, "/run/userns/u", "/run/netns/n", false, 0},
		{true, "", "/proc/77/ns/net", false, 0},
		{false, "/proc/77/ns/user", "", false, 0},
	} {
		spec := inNamespaces("pid", "ipc", "uts", "user="+test.user)
		spec.Linux.Namespaces[0].Path = test.net
		g, err := Filter(spec, Paths{}, Rules{First: test.first})
		switch {
		case test.refused:
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "user namespace is to be that of process 77 (/proc/77/ns/user)") {
				t.Errorf("%+v: %v", test, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", test, err)
		case g.ShareUser == test.first || len(g.Dropped) != test.dropped:
			t.Errorf("%+v: shares %v, dropped %q", test, g.ShareUser, g.Dropped)
		}
	}
}

// The features list the kinds of namespace that specs may have.
func TestFeaturesHaveTheNamespaces(t *testing.T) {
	var want []string
	for _, kind := range namespaceKinds {
		want = append(want, string(kind))
	}
	slices.Sort(want)
	if got := Features().Linux.Namespaces; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A kind that the specification does not have, a kind twice, and the mounts of another
// process are refused, as with runc; they were left out without a word.
func TestOddNamespaces(t *testing.T) {
	own := []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}}
	for want, ns := range map[string]specs.LinuxNamespace{
		`kind "nope"`:              {Type: "nope"},
		"of another kind":          {Type: specs.IPCNamespace, Path: "/proc/self/ns/mnt"},
		"/proc/8/ns/net, which is": {Type: specs.UTSNamespace, Path: "/proc/8/ns/net"},
		"pid is there twice":       {Type: specs.PIDNamespace, Path: "/proc/7/ns/pid"},
		"to be /proc/7/ns/mnt":     {Type: specs.MountNamespace, Path: "/proc/7/ns/mnt"},
		"to be /proc/7/ns/cgroup":  {Type: specs.CgroupNamespace, Path: "/proc/7/ns/cgroup"},
	} {
		spec := &specs.Spec{Linux: &specs.Linux{Namespaces: append(slices.Clone(own), ns)}}
		if err := Check(spec, Rules{}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", ns, err, want)
		}
	}
}
