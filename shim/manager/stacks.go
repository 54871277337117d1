package manager

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// keepCrash has Go write to a log's descriptor what it writes to stderr (/dev/null, in a
// daemon) when this process dies of a panic, a fatal error or SIGQUIT. A log that takes
// no more does not hold up the end, as fd does not block.
func keepCrash(fd int) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(dup), logFile)
	defer f.Close()
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("have crashes logged: %w", err)
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(fd, true)) // SetCrashOutput may change that
}

// logStacksOnSignal logs the stacks of all goroutines at each SIGUSR1, as containerd's
// shims do, until the function that it returns is called.
func logStacksOnSignal(ctx context.Context) (stop func()) {
	asked, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		defer close(done)
		for range asked {
			logStacks(ctx)
		}
	}()
	return func() {
		signal.Stop(asked)
		close(asked)
		<-done
	}
}

// logStacks logs each stack as one line.
func logStacks(ctx context.Context) {
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 2); err != nil {
		log.G(ctx).WithError(err).Warn("the goroutines' stacks cannot be read")
		return
	}
	for stack := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n\n") {
		log.G(ctx).WithField("signal", "SIGUSR1").Info(stack)
	}
}
