package fakeguest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
)

// Host is a host on which sandboxes can be made, one after the other.
type Host struct {
	// Monitor makes the machines' in-memory part; it can be told to fail.
	Monitor fake.Monitor
	// Agent is in every machine. Its script is kept from one machine to the
	// next, its containers are not.
	Agent *Agent
	// RunDir is the platform's run directory.
	RunDir string
	// CgroupRoot is the platform's. New's value is a directory without cgroups,
	// because a sandbox moves the calling process.
	CgroupRoot string

	mu         sync.Mutex // guards what follows
	machines   []*machine
	transports []*transport
}

// New makes a host. runDir must be a short path: there will be sockets in it.
func New(runDir string) *Host {
	return &Host{Agent: &Agent{script: newScript()}, RunDir: runDir, CgroupRoot: runDir}
}

// Platform is the host as a sandbox sees it.
func (h *Host) Platform() virtcontainers.Platform {
	return virtcontainers.Platform{
		Monitor: monitor{h}, Accel: hypervisor.AccelTCG,
		OpenTransport: h.openTransport, RunDir: h.RunDir, CgroupRoot: h.CgroupRoot,
	}
}

// Config is a configuration with which sandboxes boot here.
func Config() *config.Config {
	return &config.Config{
		Hypervisor: config.Hypervisor{
			Path: "/none/qemu", Kernel: "/none/vmlinux", Initrd: "/none/initrd",
			MachineType: "q35", VCPUs: 1, MaxVCPUs: 1, MemoryMiB: 256, SharedFS: config.SharedFSVirtioFS,
			VirtioFS:    config.VirtioFS{Cache: config.CacheAuto},
			BlockDriver: config.BlockSCSI, BlockAIO: config.AIOThreads,
		},
		Agent:   config.Agent{DialTimeout: 10 * time.Second, KillTimeout: 10 * time.Second},
		Runtime: config.Runtime{CreateContainerTimeout: 10 * time.Second},
	}
}

// VM is the last machine that was launched, or nil.
func (h *Host) VM() *fake.VM {
	vms := h.Monitor.VMs()
	if len(vms) == 0 {
		return nil
	}
	return vms[len(vms)-1]
}

// Share is the connection of the last machine that was launched to the server of its
// share, nil for none. A test may use it as that machine does.
func (h *Host) Share() *os.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machines[len(h.machines)-1]
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.files) == 0 {
		return nil
	}
	return m.files[0]
}

// Leftovers lists what sandboxes have left on the host: open machines,
// transports and connections, mounts and state.
func (h *Host) Leftovers() ([]string, error) {
	left := h.open()
	if n := h.Agent.Connections(); n > 0 {
		left = append(left, fmt.Sprintf("%d connections to the agent", n))
	}
	mounts, err := mountsBelow(h.RunDir)
	if err != nil {
		return nil, err
	}
	left = append(left, mounts...)
	dir := h.Platform().StateDir()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, e := range entries {
		left = append(left, filepath.Join(dir, e.Name()))
	}
	return left, nil
}

// Clear ends every machine and removes RunDir with all mounts in it, so that a
// failed test leaves nothing on the host either.
func (h *Host) Clear() error {
	for _, vm := range h.Monitor.VMs() {
		vm.Die(errors.New("the test is over"))
	}
	mounts, err := mountsBelow(h.RunDir)
	for _, m := range slices.Backward(mounts) {
		e := unix.Unmount(strings.TrimPrefix(m, "mount "), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if !errors.Is(e, unix.EINVAL) { // otherwise it went with the mount above it
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("unmount: %w", err) // nothing may be removed below a mount
	}
	return os.RemoveAll(h.RunDir)
}

// open lists the machines and transports that are not closed.
func (h *Host) open() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var left []string
	for _, m := range h.machines {
		if m.Err() == nil {
			left = append(left, fmt.Sprintf("machine of process %d", m.PID()))
		}
	}
	for _, t := range h.transports {
		if !t.isClosed() {
			left = append(left, "a transport")
		}
	}
	return left
}

func mountsBelow(dir string) ([]string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		// The fifth field is the mount point (proc(5)).
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, "mount "+fields[4])
		}
	}
	return found, nil
}

func (h *Host) openTransport(context.Context) (virtcontainers.Transport, error) {
	if err := h.Agent.enter(context.Background(), OpenTransport, nil); err != nil {
		return nil, err
	}
	h.Agent.reset()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &transport{agent: h.Agent}
	h.transports = append(h.transports, t)
	return t, nil
}
