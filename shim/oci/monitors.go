package oci

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/oci/monitor"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// monitorsDie bounds the end of monitors that are killed.
const monitorsDie = 5 * time.Second

// hurryMonitor passes a signal to the monitor of a container that has ended, or was
// killed, so that it no longer waits for a reader that has stalled. The exit code stays
// the container's: the monitor must not be killed or stopped.
func hurryMonitor(p persist.Process, signal unix.Signal) error {
	switch signal {
	case unix.SIGKILL, unix.SIGSTOP:
		signal = unix.SIGTERM
	case unix.SIGTTIN, unix.SIGTTOU: // a run in the foreground does not catch them
		return nil
	}
	return p.Signal(signal)
}

// endMonitors ends the monitors of a container that is gone. They pass its last output on
// to readers that read; those that hang are killed.
func endMonitors(monitors []persist.Process) error {
	var errs []error
	for _, p := range monitors {
		errs = append(errs, hurryMonitor(p, unix.SIGTERM))
	}
	for deadline := time.Now().Add(monitor.EndLimit); len(monitors) > 0; monitors = monitors[1:] {
		if monitors[0].Await(time.Until(deadline)) != nil {
			break
		}
	}
	return errors.Join(append(errs, persist.KillAll(monitorsDie, monitors...))...)
}
