// Package platform provides what a sandbox needs from this host: it connects the
// parts that virtcontainers knows only as interfaces.
package platform

import (
	"context"
	"os"
	"strings"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor/qemu"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/forward"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/network"
	"github.com/katabox/katabox/virtcontainers/podnet"
)

// RunDir holds what sandboxes make on the host.
const RunDir = "/run/kata-containers"

// FailpointEnv names a boot step that fails on purpose, or "@" and a file that
// holds the step's name; for tests.
const FailpointEnv = "KATABOX_FAILPOINT"

// failpoint returns the step that is to fail now, or "". With a file, each pod of a
// running engine can fail at another step.
func failpoint() string {
	step := os.Getenv(FailpointEnv)
	file, named := strings.CutPrefix(step, "@")
	if !named {
		return step
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error() // no step has that name: the test's pod boots, which fails the test
	}
	return strings.TrimSpace(string(content))
}

// Host returns this host's platform. ctx has the logger for the monitor's output.
func Host(ctx context.Context) virtcontainers.Platform {
	accel, reason := qemu.DetectAccel(qemu.Host{})
	return virtcontainers.Platform{
		Monitor: qemu.New(qemu.Options{StderrLine: func(id, line string) {
			log.G(ctx).WithField("source", "qemu").WithField("sandbox", id).Warn(line)
		}}),
		Accel: accel, AccelReason: reason,
		KernelParams:  qemu.DefaultKernelParams(accel),
		OpenTransport: openTransport,
		OpenNetwork:   func(o network.Options) (podnet.Links, error) { return network.Open(o) },
		CleanNetwork:  network.Clean,
		OpenForward: func(ctx context.Context, namespace string, dial forward.DialFunc) (podnet.Forwarder, error) {
			return forward.Open(ctx, namespace, dial)
		},
		RunDir:    RunDir,
		Failpoint: failpoint(),
	}
}

// Leftovers returns the part of this host's platform that it takes to remove
// what dead shims left.
func Leftovers() virtcontainers.Platform {
	return virtcontainers.Platform{CleanNetwork: network.Clean, RunDir: RunDir}
}

// transport adapts package vsock's transport to virtcontainers' types. Its
// connections begin with the machine's key.
type transport struct {
	vsock.Transport
	dial guest.DialFunc
}

func openTransport(ctx context.Context) (virtcontainers.Transport, error) {
	t, err := vsock.Open(ctx, vsock.Options{})
	if err != nil {
		return nil, err
	}
	dial := guest.WithKey(
		func(ctx context.Context, port uint32) (guest.Conn, error) { return t.Dial(ctx, port) },
		func(ctx context.Context, port uint32) (guest.Conn, error) { return t.DialReserved(ctx, port) },
	)
	return transport{t, dial}, nil
}

// Dial implements virtcontainers.Transport.
func (t transport) Dial(ctx context.Context, port uint32) (guest.Conn, error) {
	return t.dial(ctx, port)
}
