package virtcontainers_test

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// sized is the configuration of a machine that may have up to four vCPUs.
func sized(static bool) virtcontainers.Options {
	opts := options(newObserver())
	opts.Config = fakeguest.Config()
	opts.Config.Hypervisor.MaxVCPUs, opts.Config.Hypervisor.DefaultVCPUs = 4, 0.5
	opts.Config.Runtime.StaticSizing = static
	return opts
}

func limits(quota, memory int64) *specs.LinuxResources {
	period := uint64(100_000)
	return &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Memory: &specs.LinuxMemory{Limit: &memory},
	}
}

func TestStaticSize(t *testing.T) {
	const cri = "io.kubernetes.cri.sandbox-"
	pod := map[string]string{cri + "cpu-quota": "150000", cri + "cpu-period": "100000", cri + "memory": "104857600"}
	tests := []struct {
		name      string
		static    bool
		size      virtcontainers.SizeHints
		vcpus     uint32
		memoryMiB uint64
	}{
		{"nothing is said", true, virtcontainers.SizeHints{}, 1, 256},
		{"a pod", true, virtcontainers.SizeHints{Annotations: pod, Limits: &specs.LinuxResources{}}, 2, 384},
		{"a single container", true, virtcontainers.SizeHints{Limits: limits(260_000, 129<<20)}, 4, 512},
		{"more than there can be", true, virtcontainers.SizeHints{Limits: limits(900_000, 1)}, 4, 384},
		{"not static", false, virtcontainers.SizeHints{Annotations: pod, Limits: limits(1, 1)}, 1, 256},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			host := newHost(t)
			opts := sized(test.static)
			opts.Size = test.size
			s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
			if err != nil {
				t.Fatal(err)
			}
			most := test.vcpus
			if !test.static {
				most = 4
			}
			if got := host.VM().Spec; got.VCPUs != test.vcpus || got.MaxVCPUs != most || got.MemoryMiB != test.memoryMiB {
				t.Errorf("a machine of %d vCPUs, up to %d, and %d MiB, want %d, %d and %d",
					got.VCPUs, got.MaxVCPUs, got.MemoryMiB, test.vcpus, most, test.memoryMiB)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnreadableSize(t *testing.T) {
	host := newHost(t)
	for text, size := range map[string]virtcontainers.SizeHints{
		`"much"`: {Annotations: map[string]string{"io.kubernetes.cri.sandbox-memory": "much"}},
		`"many"`: {Limits: &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "many"}}},
	} {
		opts := sized(true)
		opts.Size = size
		_, err := virtcontainers.New(t.Context(), host.Platform(), opts)
		wantError(t, "size that cannot be read", err, errdefs.IsInvalidArgument, text)
	}
}
