package tracing

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is the argument with which kata-runtime sends a batch from its
// standard input.
const Command = "export-traces"

// GuardFD is a pipe in the exporting process. Its other end is the shim's: when
// it is closed, the process ends. The last batch's process has none.
const GuardFD = 3

// maxComplaint bounds what is kept of the process's stderr, in bytes.
const maxComplaint = 1 << 10

// ByProgram returns an Exporter that runs a program, kata-runtime's path, for
// each batch.
func ByProgram(program string) Exporter {
	return func(ctx context.Context, b *Batch, last bool) error {
		in, err := asFile(b)
		if err != nil {
			return err
		}
		defer in.Close()
		if last {
			return startLast(program, in)
		}
		return run(ctx, program, in)
	}
}

// asFile puts the batch into a file in memory: unlike a pipe it needs no writer
// while the process reads.
func asFile(b *Batch) (*os.File, error) {
	fd, err := unix.MemfdCreate("traces", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "traces")
	err = json.NewEncoder(f).Encode(b)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write batch of spans: %w", err)
	}
	return f, nil
}

func command(ctx context.Context, program string, in *os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, Command)
	cmd.Dir, cmd.Stdin = "/", in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// run waits for the process, which is killed when ctx ends.
func run(ctx context.Context, program string, in *os.File) error {
	guard, held, err := os.Pipe()
	if err != nil {
		return os.NewSyscallError("pipe", err)
	}
	defer held.Close()
	defer guard.Close()
	cmd, complaint := command(ctx, program, in), new(head)
	cmd.ExtraFiles, cmd.Stderr, cmd.WaitDelay = []*os.File{guard}, complaint, time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", program, Command, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, Command, err, strings.TrimSpace(string(complaint.text)))
	}
	return nil
}

// startLast starts the process, which outlives the shim.
func startLast(program string, in *os.File) error {
	cmd := command(context.Background(), program, in)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return cmd.Process.Release()
}

// head keeps the beginning of what is written.
type head struct{ text []byte }

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxComplaint-len(h.text))]...)
	return len(b), nil
}
