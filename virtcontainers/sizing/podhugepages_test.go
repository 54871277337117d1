package sizing

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The machine has the huge pages of a pod, once, as long as the pod exists; its
// containers' own limits of huge pages are counted as before.
func TestPodHugepages(t *testing.T) {
	const mib = 1 << 20
	limits := []specs.LinuxHugepageLimit{{Pagesize: "1GB"}, {Pagesize: "2MB", Limit: 256 * mib}}
	own := container("own", 128*mib)
	own.Spec.Linux.Resources.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 128 * mib}}
	p := newPod(t)
	if err := p.useHugepages(limits); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Container{container("c1", 128*mib), container("c2", 128*mib), own} {
		if got, err := p.Admit(t.Context(), c); err != nil || len(got) != len(limits) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if got, want := p.wanted().MemoryMiB, uint64(256+2*128+256+256); got != want {
		t.Errorf("the machine should have %d MiB, want %d", got, want)
	}
	for _, id := range []string{"c1", "c2", "own"} {
		p.Release(id)
	}
	if got, want := p.wanted().MemoryMiB, uint64(256+256); got != want {
		t.Errorf("without containers the machine should have %d MiB, want %d", got, want)
	}
}

// A pod reads the limits of its cgroup once, when it gets a container whose spec has
// none.
func TestWhenPodHugepagesAreRead(t *testing.T) {
	limited := container("c1", 0)
	limited.Spec.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}}
	pause := container("pod", 0)
	pause.Pause = true
	for name, test := range map[string]struct {
		container Container
		change    func(*Options)
		want      bool
	}{
		"a container":                {container: container("c1", 0), want: true},
		"one with limits":            {container: limited},
		"the pause container":        {container: pause},
		"continues from a saved one": {container: container("c1", 0), change: func(o *Options) { o.Most = &Most{VCPUs: 4, MemoryMiB: 1024} }},
	} {
		p := newPod(t)
		if test.change != nil {
			test.change(&p.opts)
		}
		if err := p.admitHugepages(t.Context(), test.container); err != nil {
			t.Fatal(err)
		}
		if p.hugepages.known != test.want || p.hugepages.need.MemoryBytes() != 0 {
			t.Errorf("%s: %+v", name, p.hugepages)
		}
	}
}
