package virtcontainers_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers"
)

// A pod without a pause container has its sysctls with each of its containers, whose
// own prevail.
func TestPodsSysctls(t *testing.T) {
	p := bootChanged(t, newHost(t), func(o *virtcontainers.Options) {
		o.Sysctls = map[string]string{"net.core.somaxconn": "7", "kernel.msgmax": "1"}
	})
	var got map[string]string
	p.host.Agent.After("Create", func(_ context.Context, m proto.Message) error {
		var config api.ContainerConfig
		var spec specs.Spec
		err := proto.Unmarshal(m.(*task.CreateTaskRequest).GetOptions().GetValue(), &config)
		if err == nil {
			err = json.Unmarshal(config.GetSpec(), &spec)
		}
		got = spec.Linux.Sysctl
		return err
	})
	for id, test := range map[string]struct{ own, want map[string]string }{
		"c1": {nil, map[string]string{"net.core.somaxconn": "7", "kernel.msgmax": "1"}},
		"c2": {map[string]string{"net.core.somaxconn": "9"}, map[string]string{"net.core.somaxconn": "9", "kernel.msgmax": "1"}},
	} {
		opts := p.options(id, nil)
		opts.Bundle.Spec.Linux.Sysctl = test.own
		if _, err := p.Create(t.Context(), opts, ignore); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%s: sysctls %v, want %v", id, got, test.want)
		}
		if !maps.Equal(opts.Bundle.Spec.Linux.Sysctl, test.own) {
			t.Errorf("%s: the bundle's spec was changed: %v", id, opts.Bundle.Spec.Linux.Sysctl)
		}
	}
}

// A pod without a pause container has its files and its shared memory in each
// container, unless the container has its own.
func TestPodsMounts(t *testing.T) {
	own, pods := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "pods")
	for _, file := range []string{own, pods} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(source, target string) specs.Mount {
		return specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"rbind", "rw"}}
	}
	p := bootChanged(t, newHost(t), func(o *virtcontainers.Options) {
		o.Mounts = []specs.Mount{bind(pods, "/etc/resolv.conf"), bind("/dev/shm", "/dev/shm")}
	})
	var got []specs.Mount
	p.host.Agent.After("Create", func(_ context.Context, m proto.Message) error {
		var config api.ContainerConfig
		var spec specs.Spec
		err := proto.Unmarshal(m.(*task.CreateTaskRequest).GetOptions().GetValue(), &config)
		if err == nil {
			err = json.Unmarshal(config.GetSpec(), &spec)
		}
		got = spec.Mounts
		return err
	})
	shm := specs.Mount{Destination: "/dev/shm", Type: "tmpfs", Source: "shm"}
	for id, test := range map[string]struct {
		mounts   []specs.Mount
		readOnly bool
		want     string // destinations, with ro
	}{
		"c1": {[]specs.Mount{{Destination: "/proc", Type: "proc"}, shm}, false, "/proc /etc/resolv.conf /dev/shm"},
		"c2": {[]specs.Mount{shm, bind(own, "/etc/resolv.conf")}, true, "/etc/resolv.conf /dev/shm"},
		"c3": {nil, true, "/etc/resolv.conf:ro /dev/shm"},
	} {
		opts := p.options(id, nil)
		opts.Bundle.Spec.Mounts, opts.Bundle.Spec.Root.Readonly = test.mounts, test.readOnly
		if _, err := p.Create(t.Context(), opts, ignore); err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, m := range got {
			if m.Destination == "/dev/shm" && m.Source != api.GuestShmDir {
				t.Errorf("%s: /dev/shm is %+v, want the pod's", id, m)
			}
			if slices.Contains(m.Options, "ro") {
				m.Destination += ":ro"
			}
			list = append(list, m.Destination)
		}
		if all := strings.Join(list, " "); all != test.want {
			t.Errorf("%s: mounts %s, want %s", id, all, test.want)
		}
	}
}
