package guesttest

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// What a container mounts in a volume with rshared is in the pod's other containers that
// have it with rslave, in those that run and in those that are made later, and in no
// others.
func TestGuestMountsInVolumes(t *testing.T) {
	m := guestOnly(t)
	volume := api.GuestFilesDir + "/1" // as the host names a pod's volumes (guestfs, podVolumes)
	m.mustAdd(t, &api.Storage{Driver: "tmpfs", Target: volume, Options: []string{"mode=0755"}})
	with := func(propagation, script string) *specs.Spec {
		spec := shell(script)
		spec.Linux.RootfsPropagation = propagation
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/v", Type: "bind", Source: volume, Options: []string{"rbind", propagation}})
		return spec
	}
	m.start(t, "app", with("rslave", "sleep 1000"))
	m.start(t, "apart", with("rprivate", "sleep 1000"))
	sidecar := with("rshared", "mkdir /v/in && mount -t tmpfs none /v/in && touch /v/in/file && echo mounted")
	caps := []string{"CAP_SYS_ADMIN"}
	sidecar.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	if r := m.run(t, "sidecar", sidecar); r.out != "mounted\n" {
		t.Fatalf("the sidecar: %+v", r)
	}
	for id, want := range map[string]string{"app": "file\n", "apart": ""} {
		if r := m.exec(t, id, "look", process("ls /v/in")); r.out != want || r.errs != "" {
			t.Errorf("%s: %+v, want %q", id, r, want)
		}
	}
	if r := m.run(t, "app-later", with("rslave", "ls /v/in")); r.out != "file\n" {
		t.Errorf("a later container: %+v", r)
	}
}

// A bind of a file system that the guest's kernel has is of the guest's.
func TestGuestKernelFilesystems(t *testing.T) {
	m := guestOnly(t)
	for _, id := range []string{"tracer", "tracer-again"} {
		spec := shell("grep -E '^(bpf|debugfs|tracefs) /(bpf|debug|tracing) ' /proc/mounts | cut -d' ' -f2,3 | sort; ls -d /debug/bdi /tracing/events")
		for source, destination := range map[string]string{"/sys/fs/bpf": "/bpf", "/sys/kernel/debug": "/debug", "/sys/kernel/tracing": "/tracing"} {
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: destination, Type: "bind", Source: source, Options: []string{"rbind", "rprivate"}})
		}
		const want = "/bpf bpf\n/debug debugfs\n/tracing tracefs\n/debug/bdi\n/tracing/events\n"
		if r := m.run(t, id, spec); r.out != want || r.errs != "" {
			t.Errorf("%s: %+v, want %q", id, r, want)
		}
	}
}
