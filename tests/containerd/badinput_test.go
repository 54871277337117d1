package containerd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/tests/harness"
)

// create makes a container that must be refused.
func create(ctx context.Context, d *harness.Daemon, cfg harness.ContainerConfig) error {
	c, err := d.Create(ctx, cfg)
	if err == nil {
		err = errors.Join(c.Start(ctx), c.Remove(ctx))
	}
	return err
}

// rawCreate passes containerd a spec's bytes unchanged, bypassing the client,
// and requests a task without any root file system.
func rawCreate(ctx context.Context, d *harness.Daemon, spec []byte) error {
	id := d.NewID("raw")
	store := d.Client.ContainerService()
	_, err := store.Create(ctx, containers.Container{
		ID:      id,
		Runtime: containers.RuntimeInfo{Name: d.Runtime().Type},
		Spec:    &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: spec},
	})
	if err != nil {
		return err
	}
	defer func() { _ = store.Delete(ctx, id) }()
	_, err = d.Client.TaskService().Create(ctx, &tasks.CreateTaskRequest{ContainerID: id})
	if err == nil {
		_, _ = d.Client.TaskService().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	}
	return err
}

// containerd reads a little of the spec itself, so what reaches the shim is at
// least JSON.
func TestSpecIsNoSpec(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		err := rawCreate(ctx, d, []byte(`{"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": "text"}`))
		if bed.runtime.VM {
			wantError(t, err, "config.json", "process")
		} else {
			wantError(t, err)
		}
	})
}

// Only another engine, or a damaged disk, gives the shim a spec like this.
func TestShimRefusesSpecThatIsNotJSON(t *testing.T) {
	needVM(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		for _, text := range []string{"", `{"ociVersion": "1.0`, "\x00\x01\x02", `[]`} {
			wantError(t, callShim(ctx, d, bundleWith(t, text), d.NewID("raw"), "start"), "config.json")
		}
	})
}

// bundleWith makes a bundle whose config.json is text.
func bundleWith(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRootfsIsNotThere(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		spec, err := oci.GenerateSpec(ctx, d.Client, &containers.Container{ID: "x"},
			oci.WithProcessArgs("true"), oci.WithRootFSPath(filepath.Join(d.Dir, "no-such-rootfs")))
		if err != nil {
			t.Fatal(err)
		}
		data, err := typeurl.MarshalAny(spec)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, rawCreate(ctx, d, data.GetValue()), "no-such-rootfs")
	})
}

func TestProcessWithoutArgs(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		noArgs := func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
			s.Process.Args = nil
			return nil
		}
		wantError(t, create(ctx, d, harness.ContainerConfig{Name: "noargs", Spec: []oci.SpecOpts{noArgs}}), "args")
	})
}

// A spec is one message to the guest, which takes 4 MiB (docs/compat.md).
func TestSpecIsTooLong(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		long := oci.WithEnv([]string{"LONG=" + strings.Repeat("x", 5<<20)})
		err := create(ctx, d, harness.ContainerConfig{Name: "long", Args: []string{"true"}, Spec: []oci.SpecOpts{long}})
		wantError(t, err)
		if !errdefs.IsResourceExhausted(err) {
			t.Errorf("the error is not that of a resource that is exhausted: %.300v", err)
		}
	})
}

func TestUnknownContainerType(t *testing.T) {
	needVM(t) // runc takes any value for a container
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		odd := oci.WithAnnotations(map[string]string{harness.AnnotationType: "gizmo"})
		err := create(ctx, d, harness.ContainerConfig{Name: "odd", Args: []string{"true"}, Spec: []oci.SpecOpts{odd}})
		wantError(t, err, harness.AnnotationType, "gizmo")
	})
}

func TestServiceOfNoPod(t *testing.T) {
	needVM(t) // runc makes a pod of any name
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		lost := oci.WithAnnotations(map[string]string{
			harness.AnnotationType: "container", harness.AnnotationSandboxID: "no-such-pod",
		})
		err := create(ctx, d, harness.ContainerConfig{Name: "lost", Args: []string{"true"}, Spec: []oci.SpecOpts{lost}})
		wantError(t, err, "no-such-pod")
	})
}

func TestIDWithASlash(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		err := create(ctx, d, harness.ContainerConfig{ID: "a/b", Args: []string{"true"}})
		wantError(t, err, "a/b")
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("not an invalid argument: %v", err)
		}
	})
}

// containerd refuses such an id itself; a shim must too, if called by another
// program.
func TestShimRefusesIDWithASlash(t *testing.T) {
	needVM(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		bundle := bundleWith(t, `{"ociVersion":"1.0.2"}`)
		for _, id := range []string{"../../etc", "a/b", ""} {
			wantError(t, callShim(ctx, d, bundle, id, "start"), id)
		}
	})
}

// callShim runs the shim as containerd 1.6 does; the error contains its output.
func callShim(ctx context.Context, d *harness.Daemon, bundle, id, action string) error {
	shim := d.Layout().Shim()
	cmd := exec.CommandContext(ctx, shim, "-namespace", d.Namespace(), "-address", d.Socket(),
		"-publish-binary", d.Release().Path("containerd"), "-id", id, action)
	cmd.Dir = bundle
	cmd.Env = append(d.Env(), "TTRPC_ADDRESS="+d.Socket()+".ttrpc")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

func TestKernelIsMissing(t *testing.T) {
	needVM(t)
	missing := func(o *harness.Options) { o.Kata.Kernel, o.Kata.Broken = "/no/such/kernel", true }
	eachOwn(t, missing, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		wantError(t, create(ctx, d, harness.ContainerConfig{Name: "single", Args: []string{"true"}}), "/no/such/kernel")
	})
}

func TestConfigurationIsWrong(t *testing.T) {
	needVM(t)
	wrong := func(o *harness.Options) {
		o.Kata.Extra, o.Kata.Broken = "[agent.kata]\ndial_timeout = \"soon\"\n", true
	}
	eachOwn(t, wrong, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		err := create(ctx, d, harness.ContainerConfig{Name: "single", Args: []string{"true"}})
		wantError(t, err, d.KataConfigPath(), "agent.kata.dial_timeout", "soon")
	})
}
