package virtcontainers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
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

// In a pod without a pause container no container has made the pod's user namespace
// before: each makes one, with the mappings of its spec. With a pause container, it joins
// that one's.
func TestPodsUserNamespace(t *testing.T) {
	mapped := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
	for _, standIn := range []bool{true, false} {
		p := bootChanged(t, newHost(t), func(o *virtcontainers.Options) { o.StandIn = standIn })
		create := func(id string, more ...specs.LinuxNamespace) error {
			opts := p.options(id, nil)
			linux := opts.Bundle.Spec.Linux
			linux.Namespaces = append([]specs.LinuxNamespace{
				{Type: specs.IPCNamespace}, {Type: specs.UserNamespace, Path: fmt.Sprintf("/proc/%d/ns/user", p.PID())},
			}, more...)
			linux.UIDMappings, linux.GIDMappings = mapped, mapped
			_, err := p.Create(t.Context(), opts, ignore)
			if path := linux.Namespaces[1].Path; path == "" {
				t.Error("the bundle's spec was changed")
			}
			return err
		}
		for _, id := range []string{"c1", "c2"} {
			if err := create(id, specs.LinuxNamespace{Type: specs.PIDNamespace}); err != nil {
				t.Fatal(err)
			}
			config := p.host.Agent.Config(id)
			var spec specs.Spec
			if err := json.Unmarshal(config.GetSpec(), &spec); err != nil {
				t.Fatal(err)
			}
			user := slices.Contains(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
			if config.GetShareUserNamespace() == standIn || !user || !slices.Equal(spec.Linux.UIDMappings, mapped) || !slices.Equal(spec.Linux.GIDMappings, mapped) {
				t.Errorf("without a pause container: %v, %s: joins %v, %+v", standIn, id, config.GetShareUserNamespace(), spec.Linux)
			}
		}
		err := create("joins", specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "/proc/4194303/ns/pid"})
		if standIn {
			wantError(t, "a joined PID namespace", err, errdefs.IsInvalidArgument, "/proc/4194303/ns/pid")
		} else if err != nil {
			t.Error(err)
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
