package fakeguest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/fake"
)

// monitor gives the in-memory machines the rest of what a real one has: a
// process, and files that are open while it lives.
type monitor struct{ host *Host }

// Launch implements hypervisor.Monitor.
func (m monitor) Launch(ctx context.Context, spec hypervisor.Spec) (hypervisor.VM, error) {
	vm, err := m.host.Monitor.Launch(ctx, spec)
	if err != nil {
		return nil, err
	}
	process, err := standIn()
	if err != nil {
		return nil, err
	}
	vm.(*fake.VM).SetVCPUThreads(process.Pid())
	mc := &machine{VM: vm.(*fake.VM), agent: m.host.Agent, process: process, reaped: make(chan struct{})}
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	m.host.machines = append(m.host.machines, mc)
	go mc.watch()
	return mc, nil
}

// Describe implements hypervisor.Monitor.
func (m monitor) Describe(spec hypervisor.Spec) ([]string, error) {
	return m.host.Monitor.Describe(spec)
}

// standIn starts a process that waits to be killed.
func standIn() (*child.Process, error) {
	path, err := exec.LookPath("sleep")
	if err != nil {
		return nil, fmt.Errorf("find the machine's stand-in: %w", err)
	}
	return child.Start(child.Options{Path: path, Args: []string{"3600"}})
}

// machine is a VM in memory with its own process.
type machine struct {
	*fake.VM
	agent   *Agent
	process *child.Process
	// reaped is closed when the machine and all that it held are gone.
	reaped chan struct{}

	mu    sync.Mutex // guards files
	files []*os.File
}

// watch ends the machine when its process ends, and then releases all that the
// machine held.
func (m *machine) watch() {
	defer close(m.reaped)
	select {
	case <-m.VM.Done():
	case <-m.process.Done():
		m.Die(errors.New("monitor process was killed"))
	}
	m.agent.Die()
	_ = m.process.Kill(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		_ = f.Close()
	}
	m.files = nil
}

// Attach implements hypervisor.VM. The machine keeps a share's connection
// open: virtiofsd ends with it.
func (m *machine) Attach(ctx context.Context, d hypervisor.Device) error {
	if err := m.VM.Attach(ctx, d); err != nil {
		return err
	}
	share, ok := d.(hypervisor.FSShare)
	if !ok {
		return nil
	}
	fd, err := unix.FcntlInt(share.Socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("keep share's connection: %w", err)
	}
	f := os.NewFile(uintptr(fd), "share")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files = append(m.files, f)
	return nil
}

// Stop implements hypervisor.VM.
func (m *machine) Stop(ctx context.Context) error {
	if err := m.VM.Stop(ctx); err != nil {
		return err
	}
	<-m.reaped
	return nil
}

// Done implements hypervisor.VM.
func (m *machine) Done() <-chan struct{} { return m.reaped }

// PID implements hypervisor.VM.
func (m *machine) PID() int { return m.process.Pid() }
