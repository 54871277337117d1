package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// detachedEnv is set for a process that runs a container in the background.
// Descriptor 3 is then a pipe for the container's name.
const (
	detachedEnv = "KATABOX_RUN_DETACHED"
	nameFd      = 3
)

func isDetached() bool { return os.Getenv(detachedEnv) != "" }

// keepName keeps child processes from inheriting the pipe for the name: its
// reader must see the end when this process ends.
func keepName() {
	if isDetached() {
		unix.CloseOnExec(nameFd)
	}
}

// detach starts this program again in a new session, and returns when the
// container runs, or with the program's exit code if it could not run it.
func detach(stdout io.Writer) (int, error) {
	name, nameEnd, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("detach: %w", err)
	}
	defer name.Close()
	self, err := os.Executable()
	if err != nil {
		return 0, errors.Join(fmt.Errorf("detach: %w", err), nameEnd.Close())
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), detachedEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{nameEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, heeded(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)...)
	defer signal.Stop(signals)
	if err := errors.Join(cmd.Start(), nameEnd.Close()); err != nil {
		return 0, fmt.Errorf("detach: %w", err)
	}
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig) // it may have ended
		}
	}()
	said, err := io.ReadAll(io.LimitReader(name, 4096))
	if err != nil {
		return 0, fmt.Errorf("detach: %w", err)
	}
	if text := strings.TrimSpace(string(said)); text != "" {
		fmt.Fprintln(stdout, text)
		return 0, nil
	}
	err = cmd.Wait() // it has printed the reason
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode(), nil
	}
	return 0, errors.Join(errors.New("detach: the container's process ended before it reported a result"), err)
}

// announce tells the process that started this one that the container runs, and
// stops using its standard error.
func announce(name string) error {
	if !isDetached() {
		return nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	pipe := os.NewFile(nameFd, "name")
	_, err = fmt.Fprintln(pipe, name)
	return errors.Join(err, pipe.Close())
}
