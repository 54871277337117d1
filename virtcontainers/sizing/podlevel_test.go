package sizing

import (
	"fmt"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// Limits that an update makes equal to what the pod's annotations say are no limits of
// the pod itself, also not of a container that is created again; those of the pod stay
// the pod's, also of containers that are created again with its new limit.
func TestUpdateInPodWithLimits(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		pod, first, updated int64 // MiB
		want                uint64
	}{
		"a sum":            {200, 100, 200, 256 + 400},
		"the pod's limits": {200, 200, 300, 256 + 300},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			var err error
			p.whole, err = resource.OfAnnotations(map[string]string{"io.kubernetes.cri.sandbox-memory": fmt.Sprint(test.pod * mib)})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"c1", "c2"} {
				if _, err := p.Admit(t.Context(), container(id, test.first*mib)); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range []string{"c1", "c2"} {
				err := p.Update(t.Context(), id, fmt.Appendf(nil, `{"memory":{"limit":%d}}`, test.updated*mib), func(*specs.LinuxResources) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
			}
			roundedUp := func(mib uint64) uint64 { return (mib + 127) / 128 * 128 }
			if got := p.wanted().MemoryMiB; got != roundedUp(test.want) {
				t.Errorf("the machine should have %d MiB, want %d", got, roundedUp(test.want))
			}
			for _, id := range []string{"c1", "c2"} {
				p.Release(id)
				if _, err := p.Admit(t.Context(), container(id, test.updated*mib)); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.wanted().MemoryMiB; got != roundedUp(test.want) {
				t.Errorf("after their restart the machine should have %d MiB, want %d", got, roundedUp(test.want))
			}
		})
	}
}

// What a pod may use is known with each engine, also if the machine grows.
func TestWholeOfEngines(t *testing.T) {
	const bytes = 100 << 20
	for engine, hints := range map[string]Hints{
		"containerd": {Annotations: map[string]string{"io.kubernetes.cri.sandbox-memory": fmt.Sprint(bytes)}},
		"CRI-O": {Annotations: map[string]string{
			"io.kubernetes.cri-o.PodLinuxResources": fmt.Sprintf(`{"cpu_period":100000,"cpu_quota":50000,"memory_limit_in_bytes":%d}`, bytes),
		}},
		"containerd without a pause container": {Pod: container("", bytes).Spec.Linux.Resources},
	} {
		for _, static := range []bool{false, true} {
			c := new(config.Config)
			c.Runtime.StaticSizing = static
			p := podOf(t, c)
			p.opts.Hints = hints
			if err := p.choose(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := p.whole.MemoryBytes(); got != bytes {
				t.Errorf("%s, static: %v: its containers may use %d bytes, want %d", engine, static, got, bytes)
			}
		}
	}
}

// A container that comes back with other limits has been changed without an update, as
// Kubernetes does by resizePolicy RestartContainer.
func TestRestartWithOtherLimits(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		pod, first, again int64 // MiB
		want              uint64
	}{
		"a sum":            {200, 100, 200, 256 + 400},
		"the pod's limits": {200, 200, 300, 256 + 300},
		"no change":        {200, 200, 200, 256 + 200},
	} {
		p := newPod(t)
		var err error
		p.whole, err = resource.OfAnnotations(map[string]string{"io.kubernetes.cri.sandbox-memory": fmt.Sprint(test.pod * mib)})
		if err != nil {
			t.Fatal(err)
		}
		admit := func(name string, attempt int, limit int64) {
			c := container(fmt.Sprint(name, attempt), limit*mib)
			c.Name = name
			if _, err := p.Admit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		admit("a", 0, test.first)
		admit("b", 0, test.first)
		for _, name := range []string{"a", "b"} {
			p.Release(name + "0")
			admit(name, 1, test.again)
		}
		if got, want := p.wanted().MemoryMiB, (test.want+127)/128*128; got != want {
			t.Errorf("%s: the machine should have %d MiB, want %d", name, got, want)
		}
	}
}
