package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// mounted is what an engine's -v does with a path of the host.
func mounted(source, destination string) oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{{Type: "bind", Source: source, Destination: destination, Options: []string{"rbind", "rprivate", "rw"}}})
}

// allowing is what Docker's --device-cgroup-rule does.
func allowing(rule specs.LinuxDeviceCgroup) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		rule.Allow = true
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, rule)
		return nil
	}
}

// A disk that is mounted, as Kubernetes' hostPath does it, is a disk for a container
// that may use it: a mount grants nothing.
func TestMountedDisk(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		same, moved, alone := newHostDisk(t, d, "same"), newHostDisk(t, d, "moved"), newHostDisk(t, d, "alone")
		c := with(ctx, t, pod, mounted(same.dev.Name(), same.dev.Name()), mounted(moved.dev.Name(), "/etc/passwd"), privileged)
		wantBlockDevices(ctx, t, c, 2)
		for path, host := range map[string]*hostDisk{same.dev.Name(): same, "/etc/passwd": moved} {
			if got, want := readDisk(ctx, t, c, path), strings.TrimSuffix(filepath.Base(host.file), ".disk")+"\n"; got != want {
				t.Errorf("the guest reads %q from %s, want %q", got, path, want)
			}
			writeDisk(ctx, t, c, path, 8, "written")
			host.wantWritten(t, 8, "written")
		}
		_, err := pod.Add(ctx, harness.ContainerConfig{Name: "refused", Args: []string{"true"}, Spec: []oci.SpecOpts{mounted(alone.dev.Name(), "/disk")}})
		if err == nil || !strings.Contains(err.Error(), alone.dev.Name()+", mounted at /disk") || !strings.Contains(err.Error(), "device rules do not allow it") {
			t.Errorf("without a rule for it: %v", err)
		}
		reader := with(ctx, t, pod, mounted(alone.dev.Name(), "/disk"), allowing(specs.LinuxDeviceCgroup{Type: "b", Major: &alone.major, Access: "r"}))
		if got := readDisk(ctx, t, reader, "/disk"); got != "alone\n" {
			t.Errorf("with a rule for its driver the guest reads %q", got)
		}
		p, code, err := reader.ExecRun(ctx, harness.ExecConfig{Args: script("echo x > /disk")})
		if err != nil || code == 0 || !strings.Contains(p.Err.String(), "Operation not permitted") {
			t.Errorf("write: %v, %d, %s", err, code, p.Err)
		}
		for _, container := range []*harness.Container{c, reader} {
			if err := container.Remove(ctx); err != nil {
				t.Fatal(err)
			}
		}
		wantBlockDevices(ctx, t, idle(ctx, t, pod), 0)
	})
}

// Below /dev only devices are the guest's: what processes of the host have in /dev/shm
// is theirs. A directory that the guest lacks is named.
func TestMountsBelowDev(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		memory := fmt.Sprintf("/dev/shm/katabox-test-%d", os.Getpid())
		if err := os.Mkdir(memory, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(memory) })
		write(t, filepath.Join(memory, "given"), "from the host")
		c := with(ctx, t, pod, mounted(memory, "/memory"), mounted(filepath.Join(memory, "given"), "/given"), mounted("/dev/shm", "/shm"))
		out := execOut(ctx, t, c, harness.ExecConfig{Args: script("cat /memory/given /given; echo back > /memory/made; ls /shm")})
		if want := "from the hostfrom the host"; out != want {
			t.Errorf("the container says %q, want %q", out, want)
		}
		if got, err := os.ReadFile(filepath.Join(memory, "made")); err != nil || string(got) != "back\n" {
			t.Errorf("the host reads %q, %v", got, err)
		}
		_, err := pod.Add(ctx, harness.ContainerConfig{Name: "refused", Args: []string{"true"}, Spec: []oci.SpecOpts{mounted("/dev/bus/no-such", "/bus")}})
		if err == nil || !strings.Contains(err.Error(), "mount at /bus: the guest has no /dev/bus/no-such") {
			t.Errorf("a directory that the guest lacks: %v", err)
		}
	})
}
