package sizing

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

// limitedCgroup makes a cgroup on the host with a memory limit in MiB, and
// returns the path for a container's cgroup in it.
func limitedCgroup(t *testing.T, limitMiB int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("makes cgroups, which needs root")
	}
	path := fmt.Sprintf("/kbtest-fit-%d-%d", os.Getpid(), limitMiB)
	for _, file := range []string{"/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", "/sys/fs/cgroup" + path + "/memory.max"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(file)), "cgroup.procs")); err != nil {
			continue
		}
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Skipf("the host's cgroups cannot be written: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(filepath.Dir(file)); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(file, fmt.Append(nil, limitMiB<<20), 0); err != nil {
			t.Skipf("the host's cgroups limit no memory: %v", err)
		}
		return path + "/c"
	}
	t.Skip("the host has no cgroup for memory")
	return ""
}

// The machine's own memory is what the pod's limit leaves beside the VMM's
// overhead and the containers' limits, in whole blocks.
func TestFit(t *testing.T) {
	const own = 2048
	path := limitedCgroup(t, 1000)
	said := func(bytes string) map[string]string {
		return map[string]string{"io.kubernetes.cri.sandbox-memory": bytes}
	}
	for what, test := range map[string]struct {
		path        string
		annotations map[string]string
		change      func(*config.Config, *Options)
		own, want   uint64
	}{
		"room for less":            {path: path, annotations: said("134217728"), want: 512},
		"containers up to a block": {path: path, annotations: said("134217729"), want: 384},
		"CRI-O": {path: path, want: 512, annotations: map[string]string{
			"io.kubernetes.cri-o.PodLinuxResources": `{"cpu_period":100000,"cpu_shares":2,"memory_limit_in_bytes":134217728}`,
		}},
		"no pause container": {path: path, want: 512, change: func(_ *config.Config, o *Options) {
			o.Hints.Pod = container("", 128<<20).Spec.Linux.Resources
		}},
		"room for all":         {path: path, annotations: said("134217728"), own: 300, want: 300},
		"room for the least":   {path: path, annotations: said("402653184"), want: 256},
		"too little room":      {path: path, annotations: said("536870912"), want: own},
		"more than the limit":  {path: path, annotations: said("4294967296"), want: own},
		"their use is unknown": {path: path, want: own},
		"nonsense":             {path: path, annotations: said("much"), want: own},
		"no limit":             {path: "/kbtest-none/c", annotations: said("134217728"), want: own},
		"no cgroup":            {annotations: said("134217728"), want: own},
		"the shim is there too": {path: path, annotations: said("134217728"), want: 384, change: func(c *config.Config, _ *Options) {
			c.Runtime.SandboxCgroupOnly = true
		}},
		"emulated": {path: path, annotations: said("134217728"), want: 384, change: func(c *config.Config, o *Options) {
			o.Accel, c.Hypervisor.TranslationMiB = hypervisor.AccelTCG, 32
		}},
		"a spare": {path: path, annotations: said("134217728"), want: own, change: func(c *config.Config, _ *Options) {
			c.Factory.VMs = 1
		}},
		"from a template": {path: path, annotations: said("134217728"), want: own, change: func(c *config.Config, _ *Options) {
			c.Factory.Template = true
		}},
	} {
		c := new(config.Config)
		p := &Pod{opts: Options{Config: c, Accel: hypervisor.AccelKVM, CgroupsPath: test.path, Hints: Hints{Annotations: test.annotations}}}
		if test.change != nil {
			test.change(c, &p.opts)
		}
		p.whole, _ = p.opts.Hints.whole() // of nonsense nothing, as for choose
		p.openAbove(t.Context())
		wanted := uint64(own)
		if test.own > 0 {
			wanted = test.own
		}
		if got := p.fit(t.Context(), wanted); got != test.want {
			t.Errorf("%s: %d MiB, want %d", what, got, test.want)
		}
	}
}
