package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/console"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
	"github.com/katabox/katabox/shim/oci/command"
	"github.com/katabox/katabox/virtcontainers/guest"
)

const debugDescription = "ID is the pod's id, or a prefix of it. The command has the rights of the guest's agent, and sees the processes and files of all\n" +
	"containers. Without a command it is a shell. It gets a terminal if this command has one. The exit code is the command's.\n" +
	"The pod must have been started with debug_console_enabled = true in [agent.kata], and the guest image must have the program:\n" +
	"the image of make guest-image-debug has busybox. The output comes from the guest: do not trust it."

func debugCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "debug", Usage: "run a shell or a command in a pod's guest, beside its containers", ArgsUsage: "ID [COMMAND [ARGUMENT...]]",
		Description: debugDescription,
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() == 0 {
				return fmt.Errorf("want a pod's id: see %s --help", c.FullName())
			}
			pod, err := monitor.Find(h.records, c.Args().First())
			if err != nil {
				return err
			}
			return debugPod(ctx, pod, c.Args().Tail(), c.Root().Writer)
		},
	}
}

// debugPod runs a command in the pod's guest, with this process's input.
func debugPod(ctx context.Context, pod monitor.Pod, args []string, out io.Writer) error {
	conn, err := pod.OpenDebug(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	p := guest.DebugProcess{Args: args, Term: os.Getenv("TERM")}
	terminal := terminalOf(out)
	if terminal != nil {
		p.Terminal = true
		p.Rows, p.Columns = sizeOf(terminal)
	}
	session, err := guest.OpenDebug(conn, p)
	if err != nil {
		return fmt.Errorf("debug pod %s: %w", pod.ID, err)
	}
	if terminal != nil {
		if err := terminal.SetRaw(); err != nil {
			return fmt.Errorf("set up terminal: %w", err)
		}
		defer func() { _ = terminal.Reset() }()
		defer followSize(terminal, session)()
	}
	go sendInput(session, os.Stdin) // until its end, or this process's
	return receiveOutput(session, out)
}

// terminalOf is this process's terminal, if its input and its output are one.
func terminalOf(out io.Writer) console.Console {
	if out != io.Writer(os.Stdout) {
		return nil
	}
	if _, err := console.ConsoleFromFile(os.Stdout); err != nil {
		return nil
	}
	terminal, err := console.ConsoleFromFile(os.Stdin)
	if err != nil {
		return nil
	}
	return terminal
}

func sizeOf(terminal console.Console) (rows, columns uint32) {
	size, err := terminal.Size()
	if err != nil {
		return 0, 0
	}
	return uint32(size.Height), uint32(size.Width)
}

// followSize tells the guest of each change of the terminal's size, until stop.
func followSize(terminal console.Console, session *guest.DebugSession) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		for range changes {
			_ = session.Resize(sizeOf(terminal))
		}
	}()
	return func() {
		signal.Stop(changes)
		close(changes)
	}
}

func sendInput(session *guest.DebugSession, in io.Reader) {
	_, _ = io.Copy(session, in)
	_ = session.CloseInput()
}

// receiveOutput writes what the command says, and returns its exit code as an
// error.
func receiveOutput(session *guest.DebugSession, out io.Writer) error {
	for {
		data, exited, status, err := session.Receive()
		if errors.Is(err, io.EOF) {
			return errors.New("the pod has ended, or its guest has closed the debug console")
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
		if exited {
			if status != 0 {
				return command.ExitError(status)
			}
			return nil
		}
	}
}
