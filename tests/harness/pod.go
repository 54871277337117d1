package harness

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/image"
)

// The annotations by which containerd's CRI plugin groups containers into pods.
const (
	AnnotationType      = "io.kubernetes.cri.container-type"
	AnnotationSandboxID = "io.kubernetes.cri.sandbox-id"
)

// Pod is a pause container and service containers, assembled as containerd's
// CRI plugin does.
type Pod struct {
	// Sandbox is the pause container; its id is the pod's.
	Sandbox *Container
	// Services are the containers made by Add, in order.
	Services []*Container
	daemon   *Daemon
}

// NewPod creates and starts a pod's pause container. spec is applied to its OCI
// spec last: its network namespace, for example.
func (d *Daemon) NewPod(ctx context.Context, name string, spec ...oci.SpecOpts) (*Pod, error) {
	id := d.NewID(name)
	c, err := d.Create(ctx, ContainerConfig{
		ID:    id,
		Image: image.Pause,
		Spec:  append([]oci.SpecOpts{withPodAnnotations("sandbox", id), oci.WithHostname(name)}, spec...),
	})
	if err != nil {
		return nil, err
	}
	p := &Pod{Sandbox: c, daemon: d}
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, p.Remove(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// Add creates a service container in the pod, without starting it.
func (p *Pod) Add(ctx context.Context, cfg ContainerConfig) (*Container, error) {
	own := []oci.SpecOpts{withPodAnnotations("container", p.Sandbox.Box.ID())}
	for _, kind := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
		own = append(own, oci.WithLinuxNamespace(specs.LinuxNamespace{
			Type: kind,
			Path: fmt.Sprintf("/proc/%d/ns/%s", p.Sandbox.Task.Pid(), nsFile[kind]),
		}))
	}
	cfg.Spec = append(own, cfg.Spec...)
	c, err := p.daemon.Create(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p.Services = append(p.Services, c)
	return c, nil
}

// nsFile has each namespace's file below /proc/PID/ns.
var nsFile = map[specs.LinuxNamespaceType]string{
	specs.NetworkNamespace: "net",
	specs.IPCNamespace:     "ipc",
	specs.UTSNamespace:     "uts",
}

// Remove removes the service containers, then the pause container.
func (p *Pod) Remove(ctx context.Context) error {
	var errs []error
	for _, c := range p.Services {
		errs = append(errs, c.Remove(ctx))
	}
	return errors.Join(append(errs, p.Sandbox.Remove(ctx))...)
}

func withPodAnnotations(kind, sandboxID string) oci.SpecOpts {
	return oci.WithAnnotations(map[string]string{AnnotationType: kind, AnnotationSandboxID: sandboxID})
}
