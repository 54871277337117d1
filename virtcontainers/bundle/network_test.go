package bundle_test

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

func TestNetNS(t *testing.T) {
	network := func(path string) []specs.LinuxNamespace {
		return []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: "/pid"}, {Type: specs.NetworkNamespace, Path: path}}
	}
	nerdctl := map[string]string{"nerdctl/network-namespace": "/run/netns/n"}
	for _, test := range []struct {
		name        string
		namespaces  []specs.LinuxNamespace
		annotations map[string]string
		want        string
		asked       bool
	}{
		{"a path", network("/run/netns/a"), nerdctl, "/run/netns/a", true},
		{"none yet", network(""), nil, "", true},
		{"nerdctl's", network(""), nerdctl, "/run/netns/n", true},
		{"the host's", []specs.LinuxNamespace{{Type: specs.PIDNamespace}}, nerdctl, "", false},
	} {
		b := &bundle.Bundle{Spec: &specs.Spec{Annotations: test.annotations, Linux: &specs.Linux{Namespaces: test.namespaces}}}
		if got, asked := b.NetNS(); got != test.want || asked != test.asked {
			t.Errorf("%s: %q, %v", test.name, got, asked)
		}
	}
}

func TestResolvConf(t *testing.T) {
	b := &bundle.Bundle{Spec: &specs.Spec{Mounts: []specs.Mount{
		{Destination: "/etc/resolv.conf", Source: "/below"},
		{Destination: "/etc/resolv.conf/", Source: "/pod/resolv.conf"},
		{Destination: "/etc/hosts", Source: "/pod/hosts"},
	}}}
	if got := b.ResolvConf(); got != "/pod/resolv.conf" {
		t.Errorf("got %q", got)
	}
	b.Spec.Mounts = nil
	if got := b.ResolvConf(); got != "" {
		t.Errorf("got %q without a mount", got)
	}
}
