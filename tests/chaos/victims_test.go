package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// The exit codes that do not come from the process itself.
const (
	killed      = 137 // killed by us, by the sandbox's end, or by "shim delete"
	lostContact = 255
)

// victim is one of the processes that serve a pod.
type victim struct {
	name   string
	strike func(context.Context, *scene) error
	// codes are those that a process may end with when the victim dies.
	codes []uint32
	// bomb is the command that ends it from inside the guest, if it lives
	// there.
	bomb string
	// takesVM is set if the VM dies with the victim, and with it everything in
	// it; otherwise the pod runs on.
	takesVM bool
	// takesShim is set if the task API dies with it: later calls may fail.
	takesShim bool
	// external is set if the pods need an external virtiofsd.
	external bool
	// stays is set if the victim is stopped and not continued: a call that needs it
	// waits until its caller gives up, and the pod ends when it is removed.
	stays bool
	// passes is set if the victim is continued soon: calls wait for it and succeed.
	passes bool
}

var (
	qemu      = victim{name: "QEMU", strike: strikeKind(harness.KindVMM), codes: []uint32{killed, lostContact}, takesVM: true}
	virtiofsd = victim{name: "virtiofsd", strike: strikeKind(harness.KindVirtiofsd), codes: []uint32{killed, lostContact}, takesVM: true, external: true}
	agent     = victim{name: "agent", strike: strikeBomb, codes: []uint32{killed, lostContact}, takesVM: true, bomb: killInit}
	kernel    = victim{name: "kernel", strike: strikeBomb, codes: []uint32{killed, lostContact}, takesVM: true, bomb: panicKernel}
	shim      = victim{name: "shim", strike: strikeShim, codes: []uint32{killed}, takesVM: true, takesShim: true}
	engine    = victim{name: "containerd", strike: strikeEngine, codes: []uint32{killed}}
)

// victims are the columns of the table. For virtiofsd the pods have an external
// one: the shim's own server dies with the shim.
var victims = []victim{qemu, virtiofsd, agent, shim, engine}

// strikeKind kills the pod's processes of a kind.
func strikeKind(kind string) func(context.Context, *scene) error {
	return func(_ context.Context, s *scene) error { return signalKind(s.d, kind, syscall.SIGKILL) }
}

// signalKind sends a signal to all processes of a kind. There may be none: at
// some moments they have already ended.
func signalKind(d *harness.Daemon, kind string, signal syscall.Signal) error {
	procs, err := find(d, kind)
	return errors.Join(err, signalAll(procs, signal))
}

// signalAll sends a signal to processes, of which some may have ended.
func signalAll(procs []harness.Proc, signal syscall.Signal) error {
	var errs []error
	for _, p := range procs {
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("%v to %v: %w", signal, p, err))
		}
	}
	return errors.Join(errs...)
}

// find returns the pods' processes of a kind; of the shims only the daemons,
// not the short calls (start, delete, -info).
func find(d *harness.Daemon, kind string) ([]harness.Proc, error) {
	procs, err := d.Processes()
	if err != nil {
		return nil, err
	}
	var found []harness.Proc
	for _, p := range procs {
		short := strings.HasSuffix(p.Args, " start") || strings.HasSuffix(p.Args, " delete") || strings.HasSuffix(p.Args, " -info")
		if p.Kind() == kind && !short && p.State != 'Z' {
			found = append(found, p)
		}
	}
	return found, nil
}

// outliveTimeout is how long QEMU and virtiofsd may outlive their shim: the
// kernel kills them immediately, but on a busy machine their end takes a while.
const outliveTimeout = 15 * time.Second

// strikeShim kills the shim and checks that its children end too.
func strikeShim(_ context.Context, s *scene) error {
	if err := signalKind(s.d, harness.KindShim, syscall.SIGKILL); err != nil {
		return err
	}
	return awaitNone(s.d, outliveTimeout, harness.KindVMM, harness.KindVirtiofsd)
}

// awaitNone waits until no process of these kinds is left.
func awaitNone(d *harness.Daemon, timeout time.Duration, kinds ...string) error {
	deadline := time.Now().Add(timeout)
	for {
		var left []string
		for _, kind := range kinds {
			procs, err := find(d, kind)
			if err != nil {
				return err
			}
			for _, p := range procs {
				left = append(left, p.String())
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still there after %v: %s", timeout, strings.Join(left, "; "))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// strikeEngine kills containerd.
func strikeEngine(_ context.Context, s *scene) error {
	pid, err := enginePID(s.d)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// enginePID finds containerd: a child of this process that has the daemon's
// configuration.
func enginePID(d *harness.Daemon) (int, error) {
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range cmdlines {
		data, _ := os.ReadFile(path) // fails when it has just ended
		name, args, _ := strings.Cut(string(data), "\x00")
		if filepath.Base(name) == "containerd" && strings.Contains(args, d.Dir+"/") {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("no containerd of %s is running", d.Dir)
}

// strikeBomb triggers the bomb in the guest.
func strikeBomb(_ context.Context, s *scene) error {
	_, err := s.bomb.Write([]byte("now\n"))
	return err
}

// The ways to die in the guest. An init ignores SIGKILL from inside its PID
// namespace (kill(2)), so its code is overwritten: a fault at an instruction
// cannot be ignored (kernel/signal.c, force_sig_info_to_task). Only a process
// in the guest's initial namespaces can reach it, and the kernel makes one:
// core_pattern's helper (core(5)). That helper's root is the guest's initial
// one, over which the agent has mounted its own: "/.." leads there. The agent's
// code is linked at 4 MiB, as usual for Go. It dies when it next runs, so the
// bomb keeps talking to it.
const (
	killInit = "echo '|/../run/kata-containers/shared/containers/%s/rootfs/bin/dd" +
		" if=/../dev/zero of=/../proc/1/mem bs=1M seek=4' >/proc/sys/kernel/core_pattern; sh -c 'kill -SEGV $$'"
	panicKernel = "echo %s; echo c >/proc/sysrq-trigger"
)

// bombScript waits for a word on stdin, then runs the victim's command in the
// container id.
func (v victim) bombScript(id string) string {
	return "echo armed; read word; " + fmt.Sprintf(v.bomb, id) + "; while :; do echo wake up; sleep 0.1; done"
}

// privileged lets a container write all of /proc/sys and sysrq-trigger.
func privileged() []oci.SpecOpts {
	return []oci.SpecOpts{
		oci.WithAllKnownCapabilities, oci.WithMaskedPaths(nil), oci.WithReadonlyPaths(nil), oci.WithSeccompUnconfined,
	}
}
