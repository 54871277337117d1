package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/log"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/command"
	"github.com/katabox/katabox/agent/network"
	"github.com/katabox/katabox/internal/spans"
)

// cgroupRoot is where the guest has cgroup v2.
const cgroupRoot = "/sys/fs/cgroup"

// Container is one container. Its methods may be called from any goroutine,
// but Destroy only when no other call is in progress, except OpenRoot and
// OpenPIDNamespace.
type Container struct {
	id  string
	lib *libcontainer.Container
	// cgroups makes and changes the container's cgroup.
	cgroups cgroups.Manager
	// resources are its limits and device rules.
	resources *cgroups.Resources
	// protection is of all containers.
	protection *protection
	children   command.Children
	// cgroup is the container's path in the cgroup hierarchy.
	cgroup string
	// uid and gid are those of the container's root in the guest.
	uid, gid int
	// ownPIDs is set if it has its own PID namespace, whose first process the
	// init is.
	ownPIDs bool
	hooks   *hookRun
	init    initProcess
	// leaveVolumes ends the use of the pod's volumes (podVolumes.leave).
	leaveVolumes func(settled func() bool)
	waiting      waiting
	stage        stage
	execs        execDefaults
	spans        *spans.Recorder

	// cgroupMu guards cgroups and resources: one change at a time, which may last, as
	// the kernel reclaims memory first.
	cgroupMu sync.Mutex
	freezer  freezer
}

// EndsWithInit reports whether none of the container's processes outlives its
// init. In the container's own PID namespace the kernel kills all others and waits
// for their ends before the init can be reaped (pid_namespaces(7);
// kernel/pid_namespace.c, zap_pid_ns_processes). An exec that is being started may
// not be in the namespace yet.
func (c *Container) EndsWithInit() bool { return c.ownPIDs }

// Kill sends SIGKILL to every process in the container, paused or not.
func (c *Container) Kill() error {
	err := os.WriteFile(c.cgroupFile("cgroup.kill"), []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kill container %s: %w", c.id, err)
	}
	return nil
}

// Signal sends sig to every process in the container. It may take two seconds if one of
// them does not freeze. It waits for no update or pause.
func (c *Container) Signal(sig syscall.Signal) error {
	if sig == unix.SIGKILL {
		return c.Kill()
	}
	release := c.hold()
	return errors.Join(c.signalEach(sig), release())
}

func (c *Container) signalEach(sig syscall.Signal) error {
	pids, err := c.Pids()
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("signal process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// Pids lists the processes in the container, as seen from the guest.
func (c *Container) Pids() ([]int, error) {
	pids, err := c.lib.Processes()
	if err != nil {
		return nil, fmt.Errorf("list processes of container %s: %w", c.id, err)
	}
	return pids, nil
}

// Stats reads the container's resource usage.
func (c *Container) Stats() (*stats.Metrics, error) {
	cg, err := cgroup2.Load(c.cgroup)
	if err != nil {
		return nil, fmt.Errorf("read stats of container %s: %w", c.id, err)
	}
	metrics, err := cg.Stat()
	if err != nil {
		return nil, fmt.Errorf("read stats of container %s: %w", c.id, err)
	}
	if metrics.Network, err = networkStats(); err != nil {
		return nil, fmt.Errorf("read stats of container %s: %w", c.id, err)
	}
	return metrics, nil
}

// networkStats are the pod's: its containers share one network.
func networkStats() ([]*stats.NetworkStat, error) {
	counters, err := network.ReadCounters()
	if err != nil {
		return nil, err
	}
	var list []*stats.NetworkStat
	for _, c := range counters {
		list = append(list, &stats.NetworkStat{
			Name:    c.Name,
			RxBytes: c.RxBytes, RxPackets: c.RxPackets, RxErrors: c.RxErrors, RxDropped: c.RxDropped,
			TxBytes: c.TxBytes, TxPackets: c.TxPackets, TxErrors: c.TxErrors, TxDropped: c.TxDropped,
		})
	}
	return list, nil
}

// KeepMounts keeps the share's file systems that the container has mounted after its
// end: the host has not answered all requests about their files. Its processes must
// have ended.
func (c *Container) KeepMounts() {
	c.noteKept(c.init.mounts.keep())
}

// noteKept logs why the container's file systems outlive it that are not the share's.
func (c *Container) noteKept(err error) {
	if err != nil {
		log.L.WithField("container", c.id).WithError(err).Warn("all of the container's file systems stay mounted, those on disks too")
	}
}

// Destroy removes the container: it kills the remaining processes, removes cgroup
// and state, and runs the hooks. The init process must have been reaped.
func (c *Container) Destroy() error {
	if err := c.lib.Destroy(); err != nil {
		return fmt.Errorf("destroy container %s: %w", c.id, err)
	}
	c.cgroupMu.Lock()
	limits := c.resources
	c.cgroupMu.Unlock()
	c.fitProtection(limits)
	_ = c.waiting.Close()
	settled := sync.OnceValue(passBarriers)
	c.noteKept(c.init.close(settled))
	c.leaveVolumes(settled)
	c.hooks.poststop()
	return nil
}

func (c *Container) cgroupFile(name string) string {
	return filepath.Join(cgroupRoot, c.cgroup, name)
}
