package virtcontainers_test

import (
	"context"
	"encoding/json"
	"maps"
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
