package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/rights"
	"github.com/katabox/katabox/virtcontainers"
)

// The descriptors that Launch passes on, after stdio.
const (
	controlFD = 3 + iota
	stdinFD
	stdoutFD
	stderrFD
)

// The monitor enters namespaces with its main thread only, because /proc shows
// that thread's namespaces as the process's. So the main goroutine must stay on
// it.
func init() {
	if IsMonitor() {
		runtime.LockOSThread()
	}
}

// IsMonitor reports whether Launch started this process.
func IsMonitor() bool { return os.Getenv(roleEnv) != "" }

// Main is the monitor; it returns its exit code.
func Main() int {
	_ = os.Unsetenv(roleEnv)
	control := os.NewFile(controlFD, "control")
	var cfg Config
	if err := json.NewDecoder(control).Decode(&cfg); err != nil {
		fmt.Fprintf(control, "read configuration: %v", err)
		return 1
	}
	showAs(os.Args[0])
	s, err := open(cfg, inherited(cfg))
	if err == nil {
		err = enter(cfg.PID)
	}
	if err == nil {
		err = rights.Drop() // it only copies between open descriptors now
	}
	if err == nil {
		err = s.begin(context.Background())
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		fmt.Fprint(control, err)
		return 1
	}
	fmt.Fprint(control, ready)
	_ = control.Close()
	return s.end()
}

// inherited are the streams that Launch passed on.
func inherited(cfg Config) streams {
	guest := [3]int{-1, -1, -1}
	for i, fd := range []int{stdinFD, stdoutFD, stderrFD} {
		// A descriptor that was not passed on may be one of Go's own by now: only
		// a FIFO is the monitor's.
		if isPipe(fd) && unix.SetNonblock(fd, false) == nil {
			unix.CloseOnExec(fd)
			guest[i] = fd
		}
	}
	return streams{host: [3]int{0, 1, 2}, guest: guest, terminal: cfg.Terminal, giveUp: true}
}

// showAs makes the container's program the process's name, if the kernel allows
// it.
func showAs(program string) {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(program)), 0)
}

// exitKilled is the exit code if the real one is unknown.
const exitKilled = virtcontainers.ExitKilled
