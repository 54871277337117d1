package virtcontainers

import (
	"context"
	"fmt"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/network"
)

// sleeper has a sandbox hibernate in place, and wake: the machine is paused, and the
// guest's memory is in a file on disk instead of in the host's memory. QEMU and this
// process stay, and with them devices, connections, mounts and names. The file has no
// name and its key is only here, so that nothing of it outlives this process.
//
// It owns all state of that. The sandbox passes its turnstile for each call to the
// guest, and asks it. What it does to the machine is in hibernate.go and wake.go.
type sleeper struct {
	turnstile
	machine *machine
	pod     sleepingPod
}

// sleepingPod is what a sleeper knows of its sandbox besides the machine.
type sleepingPod interface {
	mostMiB() uint64
	counters(ctx context.Context) map[string]*stats.Metrics
	listen(ctx context.Context) (*network.Doorbell, error)
	setClock(ctx context.Context) error
	gone() bool
	lose(cause error)
}

// newSleeper returns the sleeper of a sandbox that is awake.
func newSleeper(s *Sandbox) sleeper {
	return sleeper{turnstile: turnstile{wakes: make(chan *slept, 1)}, machine: &s.machine, pod: s}
}

// mostMiB returns how much memory the machine may ever have.
func (s *Sandbox) mostMiB() uint64 { return s.sizing.MostMiB() }

// counters reads the containers' statistics: while the sandbox hibernates they
// are asked for as before.
func (s *Sandbox) counters(ctx context.Context) map[string]*stats.Metrics {
	all := make(map[string]*stats.Metrics)
	for _, c := range s.Containers() {
		if m, err := c.Stats(ctx); err == nil {
			all[c.ID] = m
		}
	}
	return all
}

// Hibernate pauses the machine, saves the guest's memory to disk and returns it to
// the host, until a call to the guest or Wake. ctx bounds the call. After an error
// the sandbox continues to run. Hibernate fails with errdefs.ErrFailedPrecondition
// for a sandbox that hibernates already, or cannot, and with errdefs.ErrUnavailable
// while calls to the guest are in progress.
func (s *Sandbox) Hibernate(ctx context.Context) (Hibernation, error) {
	_, err := s.agent()
	if err == nil && s.isStopping() {
		err = errEnding
	}
	var h Hibernation
	if err == nil {
		h, err = s.sleeper.hibernate(ctx)
	}
	if err != nil {
		return Hibernation{}, fmt.Errorf("hibernate sandbox %s: %w", s.ID, err)
	}
	log.G(ctx).WithFields(log.Fields{"memory": h.MemoryBytes, "image": h.ImageBytes}).Info("sandbox hibernates")
	return h, nil
}

// Wake wakes a sandbox that hibernates, and waits for that within ctx. It does
// nothing if the sandbox is awake. After a disk error the guest is lost.
func (s *Sandbox) Wake(ctx context.Context) error {
	leave, err := s.sleeper.enter(ctx, "a call to wake it")
	if err != nil {
		return fmt.Errorf("wake sandbox %s: %w", s.ID, err)
	}
	leave()
	if _, err := s.agent(); err != nil {
		return fmt.Errorf("wake sandbox %s: %w", s.ID, err)
	}
	return nil
}

// rouseToEnd has a sandbox that hibernates wake if it has disks to flush, and
// reports whether its guest runs.
func (s *Sandbox) rouseToEnd() bool {
	h := s.sleeper.hibernation()
	if h == nil {
		return true
	}
	if !s.files.HasDisks() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.lifeCtx, h.rouseTimeout())
	defer cancel()
	if err := s.Wake(ctx); err != nil {
		log.G(s.lifeCtx).WithError(err).Warn("the sandbox hibernates and could not be woken: its disks may lack what was written last")
		return false
	}
	return true
}

// Hibernation says since when a sandbox hibernates, and what that saves.
type Hibernation struct {
	Since time.Time `json:"since"`
	// MemoryBytes is how much of the host's memory the guest had.
	MemoryBytes uint64 `json:"memory_bytes"`
	// ImageBytes is how much of the host's disk it has instead.
	ImageBytes uint64 `json:"image_bytes"`
}

// rouseRate is how fast the memory of a sandbox that ends must be restored, in bytes
// per second.
const rouseRate = 16 << 20

// rouseTimeout bounds waking a sandbox that ends, or one of whose containers does: the
// end must come even if the memory is restored very slowly.
func (h Hibernation) rouseTimeout() time.Duration {
	return wakePatience + pauseTimeout + time.Duration(h.MemoryBytes/rouseRate)*time.Second
}
