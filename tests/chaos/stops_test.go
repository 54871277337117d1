package chaos

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// stopSpan is how long a process is stopped before something else happens: it is
// continued or killed, or the caller of the operation under way gives up.
const stopSpan = time.Second

// The victims that get SIGSTOP. A stopped shim makes calls wait, as runc's does:
// only its death, or containerd's restart, ends that (TestStoppedShim). The agent,
// an init that SIGSTOP does not reach, is stopped with its machine.
var (
	stoppedQEMU = victim{
		name: "QEMU stopped", strike: stopKind(harness.KindVMM), codes: []uint32{killed, lostContact}, takesVM: true, stays: true,
	}
	stoppedVirtiofsd = victim{
		name: "virtiofsd stopped", strike: stopKind(harness.KindVirtiofsd), codes: []uint32{killed, lostContact},
		takesVM: true, stays: true, external: true,
	}
	stoppedShim = victim{
		name: "shim stopped", strike: stopThenKillShim, codes: []uint32{killed}, takesVM: true, takesShim: true,
	}
	stoppedEngine = victim{name: "containerd stopped", strike: stopEngine, passes: true}
)

// stops are the columns of the table beside victims. A round plays one of them at
// each moment, and as many rounds as there are stops play them all.
var stops = []victim{stoppedQEMU, stoppedVirtiofsd, stoppedShim, stoppedEngine}

// stopKind stops the pod's processes of a kind.
func stopKind(kind string) func(context.Context, *scene) error {
	return func(_ context.Context, s *scene) error { return signalKind(s.d, kind, syscall.SIGSTOP) }
}

// stopThenKillShim stops the shim, and kills it while calls wait for it.
func stopThenKillShim(ctx context.Context, s *scene) error {
	if err := signalKind(s.d, harness.KindShim, syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(stopSpan) // that long calls wait
	return strikeShim(ctx, s)
}

// stopEngine stops containerd for a while.
func stopEngine(_ context.Context, s *scene) error {
	return whileStopped(s.d, func() error {
		time.Sleep(stopSpan) // that long calls wait
		return nil
	})
}

// whileStopped does something while containerd is stopped.
func whileStopped(d *harness.Daemon, do func() error) error {
	pid, err := enginePID(d)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	err = do()
	return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
}
