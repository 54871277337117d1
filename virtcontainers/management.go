package virtcontainers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// openManagement opens the sandbox's management socket. A pod runs without it
// too.
func (s *Sandbox) openManagement(context.Context) error {
	if s.opts.Manage == nil {
		return nil
	}
	stop, err := s.opts.Manage(s.lifeCtx, s, s.platform.PodDir(s.ID))
	if err != nil {
		log.G(s.lifeCtx).WithError(err).Warn("the sandbox has no management socket: its metrics are not available")
		return nil
	}
	s.unmanage = stop
	return nil
}

// closeManagement waits for requests under way no longer than ctx: one may hang in a
// file system of the host.
func (s *Sandbox) closeManagement(ctx context.Context) error {
	if s.unmanage == nil {
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- s.unmanage() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for requests to the management socket: %w", context.Cause(ctx))
	}
}

// Description is what an operator sees of a sandbox.
type Description struct {
	ID  string         `json:"id"`
	Pod bundle.PodName `json:"pod,omitzero"`
	// Began is when the boot began.
	Began time.Time `json:"began"`
	// VMPID is QEMU's pid.
	VMPID        int                    `json:"vm_pid"`
	Accel        string                 `json:"accel"`
	GuestKernel  string                 `json:"guest_kernel"`
	AgentVersion string                 `json:"agent_version"`
	Containers   []ContainerDescription `json:"containers"`
	// Hibernation is nil unless the sandbox hibernates.
	Hibernation *Hibernation `json:"hibernation,omitempty"`
}

// ContainerDescription is what an operator sees of a container.
type ContainerDescription struct {
	ID    string `json:"id"`
	State string `json:"state"`
	// PID is its stand-in's pid on the host.
	PID int `json:"pid"`
}

// Console returns the end of what the guest wrote to its console, 16 KiB at most,
// without control characters.
func (s *Sandbox) Console() string { return s.vm.ConsoleTail() }

// maxVersion bounds each version that a guest reports, in bytes.
const maxVersion = 128

// Describe returns the sandbox's description for operators, with the containers
// sorted by id. It makes no calls.
func (s *Sandbox) Describe() Description {
	d := Description{
		ID: s.ID, Pod: s.opts.Pod, Began: s.recorder.Zero().Round(0).UTC(), VMPID: s.vm.PID(), Accel: string(s.platform.Accel),
		GuestKernel: version(s.client.Info.GetKernelRelease()), AgentVersion: version(s.client.Info.GetAgentVersion()),
	}
	d.Hibernation = s.sleeper.hibernation()
	for _, c := range s.Containers() {
		d.Containers = append(d.Containers, ContainerDescription{ID: c.ID, State: c.Info().State.String(), PID: c.PID()})
	}
	slices.SortFunc(d.Containers, func(a, b ContainerDescription) int { return cmp.Compare(a.ID, b.ID) })
	return d
}

// version returns the printable beginning of a version that a guest reports.
func version(said string) string {
	printable := []byte(said[:min(len(said), maxVersion)])
	return string(slices.DeleteFunc(printable, func(b byte) bool { return b < ' ' || b > '~' }))
}
