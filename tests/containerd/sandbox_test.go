package containerd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/sandbox"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/tests/harness"
)

// A pod of the sandbox API is a machine without a pause container: containers
// can be added and removed, and only ending the sandbox ends it.
func TestSandboxAPI(t *testing.T) {
	needVM(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		if d.Release().Name == "1.6" {
			t.Skip("containerd 1.6 has no sandbox API")
		}
		ctx = d.Context(ctx)
		id := d.NewID("sandbox")
		box, err := d.Client.NewSandbox(ctx, id, client.WithSandboxRuntime(bed.runtime.Type, nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := box.Shutdown(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("shut the sandbox down: %v", err)
			}
		})
		if err := box.Start(ctx); err != nil {
			t.Fatal(err)
		}
		controller := d.Client.SandboxController(box.Metadata().Sandboxer)
		if status, err := controller.Status(ctx, id, false); err != nil || status.State != "SANDBOX_READY" || status.Pid == 0 {
			t.Errorf("a started sandbox is %+v, %v", status, err)
		}
		ended, err := box.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		runInSandbox(ctx, t, d, id)
		if _, err := controller.Metrics(ctx, id); err != nil {
			t.Errorf("metrics: %v", err)
		}
		if err := box.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if status := <-ended; status.Error() != nil || status.ExitCode() != 0 {
			t.Errorf("a stopped sandbox ended with %d, %v", status.ExitCode(), status.Error())
		}
		if status, err := controller.Status(ctx, id, false); err != nil || status.State != "SANDBOX_NOTREADY" {
			t.Errorf("a stopped sandbox is %+v, %v", status, err)
		}
	})
}

// A sandbox of that API has the configuration file of its runtime's options, and the
// sysctls of its pod's configuration.
func TestSandboxAPISettings(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		ctx = d.Context(ctx)
		const missing = "/no/such/configuration.toml"
		_, err := d.Client.NewSandbox(ctx, d.NewID("misconfigured"), client.WithSandboxRuntime(bed.runtime.Type, &runtimeoptions.Options{ConfigPath: missing}))
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("a file that is not there: %v", err)
		}
		id := d.NewID("settings")
		now := time.Now().UTC()
		controller := d.Client.SandboxController("shim")
		box := sandbox.Sandbox{ID: id, Sandboxer: "shim", CreatedAt: now, UpdatedAt: now}
		if err := client.WithSandboxRuntime(bed.runtime.Type, nil)(ctx, d.Client, &box); err != nil {
			t.Fatal(err)
		}
		if box, err = d.Client.SandboxStore().Create(ctx, box); err != nil {
			t.Fatal(err)
		}
		if err := controller.Create(ctx, box, sandbox.WithOptions(podWithSysctl("net.core.somaxconn", "77"))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := controller.Shutdown(context.WithoutCancel(ctx), id); err != nil {
				t.Errorf("shut the sandbox down: %v", err)
			}
		})
		if _, err := controller.Start(ctx, id); err != nil {
			t.Fatal(err)
		}
		c, code, err := d.Run(ctx, harness.ContainerConfig{Name: "reader", Args: []string{"cat", "/proc/sys/net/core/somaxconn"}, Sandbox: id})
		if err != nil || code != 0 || c.Out.String() != "77\n" {
			t.Fatalf("exit code %d, %v: %q", code, err, c.Out.String())
		}
		if err := c.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
}

// podWithSysctl is CRI's PodSandboxConfig with linux.sysctls (api.proto).
func podWithSysctl(name, value string) *anypb.Any {
	field := func(num protowire.Number, content string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), content))
	}
	return &anypb.Any{TypeUrl: "runtime.v1.PodSandboxConfig", Value: []byte(field(8, field(3, field(1, name)+field(2, value))))}
}

// runInSandbox runs two containers, one after the other, in the same machine.
func runInSandbox(ctx context.Context, t *testing.T, d *harness.Daemon, id string) {
	t.Helper()
	var boots []string
	for _, want := range []uint32{0, 42} {
		args := []string{"sh", "-c", "cat /proc/sys/kernel/random/boot_id; exit " + map[uint32]string{0: "0", 42: "42"}[want]}
		c, code, err := d.Run(ctx, harness.ContainerConfig{Name: "member", Args: args, Sandbox: id})
		if err != nil || code != want {
			t.Fatalf("exit code %d, %v; want %d", code, err, want)
		}
		boots = append(boots, c.Out.String())
		if err := c.Remove(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if boots[0] == "" || boots[0] != boots[1] {
		t.Errorf("the containers ran in machines %q", boots)
	}
}
