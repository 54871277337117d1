package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/procmem"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

const (
	// DefaultLaunchTimeout bounds Launch if Options set no bound. A launch
	// takes 20 ms; the rest is for a host that starts many concurrently. If
	// QEMU dies, Launch fails immediately.
	DefaultLaunchTimeout = 30 * time.Second
	// cleanupTimeout bounds clean-up after a context has ended.
	cleanupTimeout = 5 * time.Second
	// stderrLines is how much of QEMU's stderr goes into an error.
	stderrLines = 8
)

// Options apply to all machines of a Monitor.
type Options struct {
	// LaunchTimeout bounds Launch; 0 is DefaultLaunchTimeout.
	LaunchTimeout time.Duration
	// StderrLine, when not nil, gets each line of QEMU's stderr. It must not
	// block.
	StderrLine func(id, line string)
}

// Monitor launches machines with QEMU. Its only state is facts about the host.
type Monitor struct {
	opts Options
	tsc  tscMeter
}

var _ hypervisor.Monitor = (*Monitor)(nil)

// New makes a Monitor.
func New(opts Options) *Monitor {
	if opts.LaunchTimeout == 0 {
		opts.LaunchTimeout = DefaultLaunchTimeout
	}
	return &Monitor{opts: opts, tsc: newTSCMeter("/proc/cpuinfo")}
}

// Launch implements hypervisor.Monitor.
func (m *Monitor) Launch(ctx context.Context, spec hypervisor.Spec) (hypervisor.VM, error) {
	vm, err := m.launch(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("launch virtual machine %s: %w", spec.ID, err)
	}
	return vm, nil
}

func (m *Monitor) launch(ctx context.Context, spec hypervisor.Spec) (*VM, error) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.LaunchTimeout+fillTime(spec.Memory, spec.MemoryMiB))
	defer cancel()
	if err := checkFiles(spec); err != nil {
		return nil, err
	}
	if err := freeHugePages(sysHugePages, spec.Memory.HugePageMiB, spec.MemoryMiB); err != nil {
		return nil, err
	}
	spec.Threading = threading(ctx, spec)
	conn, files, err := sockets(spec.ExtraMonitor)
	if err != nil {
		return nil, err
	}
	console := child.NewTail(consoleBytes)
	passed := files
	var template procmem.FileID
	if isPrivate(spec) {
		passed = append(passed[:len(passed):len(passed)], spec.Template.Sealed)
		if template, err = procmem.IDOf(spec.Template.Sealed); err != nil {
			closeAll(files)
			return nil, errors.Join(fmt.Errorf("template's memory: %w", err), conn.Close())
		}
	}
	proc, spec, err := m.start(spec, passed, console)
	// The child has its duplicates; with ours open the connection would not end
	// with QEMU.
	closeAll(files)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	mon := qmp.New(conn)
	if err := mon.Handshake(ctx); err != nil {
		return nil, m.abandon(ctx, proc, mon, err)
	}
	vm := newVM(ctx, spec, proc, mon, console)
	vm.template, vm.tscKHz = template, m.guestTSC(spec)
	if err := vm.prepare(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return nil, errors.Join(err, vm.Stop(ctx))
	}
	return vm, nil
}

// start starts QEMU with files as its first descriptors after stderr, and
// returns the spec with the names in QEMU's jail.
func (m *Monitor) start(spec hypervisor.Spec, files []*os.File, console *child.Tail) (*child.Process, hypervisor.Spec, error) {
	wiring := Wiring{QMPFD: child.FirstExtraFD, MonitorFD: child.FirstExtraFD + 1, MemoryFD: child.FirstExtraFD + len(files) - 1, Firmware: firmware(spec), TSCKHz: m.guestTSC(spec)}
	var shut *child.Jail
	if spec.Jail != nil {
		var err error
		if shut, spec, wiring.Firmware, err = jail(spec, wiring.Firmware); err != nil {
			return nil, spec, err
		}
	}
	args, err := BuildArgs(spec, wiring)
	if err != nil {
		return nil, spec, err
	}
	opts := m.childOptions(spec, args, files, console)
	opts.Jail = shut
	proc, err := child.Start(opts)
	return proc, spec, err
}

// guestTSC returns the rate of a guest's time stamp counter if that is the host's, or
// 0.
func (m *Monitor) guestTSC(spec hypervisor.Spec) uint64 {
	if spec.Accel != hypervisor.AccelTCG {
		return 0
	}
	return m.tsc.kHz()
}

// childOptions puts QEMU into its own PID, IPC and UTS namespaces, and into the
// network namespace that the spec names or an empty one. They need CAP_SYS_ADMIN
// and no measurable time: QEMU reaches the host through inherited and passed
// descriptors only.
func (m *Monitor) childOptions(spec hypervisor.Spec, args []string, files []*os.File, console *child.Tail) child.Options {
	opts := child.Options{
		Path:       spec.Path,
		Args:       args,
		ExtraFiles: files,
		Stdout:     console,
		StdoutLine: spec.ConsoleLine,

		NetworkNamespace: spec.NetworkNamespace,
		Cloneflags:       unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if spec.NetworkNamespace == "" {
		opts.Cloneflags |= unix.CLONE_NEWNET
	}
	if m.opts.StderrLine != nil {
		opts.StderrLine = func(line string) { m.opts.StderrLine(spec.ID, line) }
	}
	return opts
}

// abandon ends a QEMU that did not start, and returns an error with its output.
func (m *Monitor) abandon(ctx context.Context, proc *child.Process, mon *qmp.Monitor, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if errors.Is(cause, qmp.ErrClosed) {
		// QEMU is about to exit: wait for its status and last output.
		select {
		case <-proc.Done():
		case <-time.After(exitGrace):
		}
	}
	killErr := proc.Kill(ctx)
	_ = mon.Disconnect()
	if killErr != nil {
		return errors.Join(cause, killErr)
	}
	return exitError(proc, cause)
}

// exitError adds to cause how the process ended and what it printed last.
func exitError(proc *child.Process, cause error) error {
	words := proc.Stderr().LastLines(stderrLines)
	if words == "" {
		words = "nothing"
	}
	return fmt.Errorf("%w (QEMU: %v; it printed: %s)", cause, proc.ExitState(), words)
}

// checkFiles returns a clear error for a missing file, before QEMU fails.
func checkFiles(spec hypervisor.Spec) error {
	for _, f := range []struct{ what, path string }{
		{"monitor executable", spec.Path},
		{"kernel", spec.Kernel},
		{"initrd", spec.Initrd},
		{"firmware", spec.Firmware},
	} {
		if f.path == "" && (f.what == "initrd" || f.what == "firmware") {
			continue
		}
		if !filepath.IsAbs(f.path) {
			return fmt.Errorf("%s %q: not an absolute path: %w", f.what, f.path, errdefs.ErrInvalidArgument)
		}
		info, err := os.Stat(f.path)
		if err != nil {
			return fmt.Errorf("find %s: %w", f.what, err)
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s %s: not a regular file: %w", f.what, f.path, errdefs.ErrInvalidArgument)
		}
	}
	if err := checkFirmware(spec); err != nil {
		return err
	}
	if dir := spec.Memory.Dir; dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("directory for memory %s: missing, or not a directory: %w", dir, errdefs.ErrInvalidArgument)
		}
	}
	if ns := spec.NetworkNamespace; ns != "" && !filepath.IsAbs(ns) {
		return fmt.Errorf("network namespace %q: not an absolute path: %w", ns, errdefs.ErrInvalidArgument)
	}
	return nil
}

// sockets returns our end of the QMP connection, and the files that QEMU
// inherits: its end and, if there is an extra monitor, its listening socket.
func sockets(extra hypervisor.ExtraMonitor) (*net.UnixConn, []*os.File, error) {
	conn, remote, err := child.Socket("QMP")
	if err != nil {
		return nil, nil, err
	}
	files := []*os.File{remote}
	if extra.Path != "" {
		listener, err := listenForMonitor(extra.Path)
		if err != nil {
			_ = conn.Close()
			closeAll(files)
			return nil, nil, err
		}
		files = append(files, listener)
	}
	return conn, files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
