package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/tests/harness"
)

//go:embed init/init.c
var initSource string

// bareMachine is the pod's QEMU without the pod: the same machine, CPU, memory,
// firmware, kernel and kernel parameters, no device but the serial port, and an
// init that only prints a word.
type bareMachine struct {
	path string
	args []string
}

// keptFlags are the options of the pod's QEMU that make the machine; each has
// one value, except those in bareFlags.
var (
	keptFlags = []string{"-machine", "-accel", "-cpu", "-smp", "-m", "-object", "-rtc", "-global", "-bios", "-kernel", "-append", "-display"}
	bareFlags = []string{"-no-user-config", "-nodefaults", "-no-reboot"}
)

// fileFlags are the options whose value is a file. QEMU sees it under a name in
// the root of its jail.
var fileFlags = []string{"-bios", "-kernel"}

// machineArgs returns the command line of a pod's QEMU, with its files copied to
// dir.
func machineArgs(pid int, dir string) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, fmt.Errorf("read QEMU's command line: %w", err)
	}
	args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	for i := 0; i+1 < len(args); i++ {
		if !slices.Contains(fileFlags, args[i]) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), args[i+1]))
		if err != nil {
			return nil, fmt.Errorf("read QEMU's file: %w", err)
		}
		args[i+1] = filepath.Join(dir, "bare"+args[i])
		if err := os.WriteFile(args[i+1], data, 0o600); err != nil {
			return nil, fmt.Errorf("copy QEMU's file: %w", err)
		}
	}
	return args, nil
}

// newBareMachine takes the machine from a pod's QEMU command line.
func newBareMachine(ctx context.Context, d *harness.Daemon, podArgs []string) (*bareMachine, error) {
	if len(podArgs) == 0 {
		return nil, errors.New("find the pod's QEMU: it has no command line")
	}
	initrd := filepath.Join(d.Dir, "bare.cpio")
	if err := writeBareInitrd(ctx, d.Dir, initrd); err != nil {
		return nil, err
	}
	m := keptMachine(podArgs)
	m.args = append(m.args, "-initrd", initrd, "-serial", "stdio")
	return m, nil
}

// keptMachine is the bare machine without an initrd.
func keptMachine(podArgs []string) *bareMachine {
	m := &bareMachine{path: podArgs[0]}
	for i := 1; i < len(podArgs); i++ {
		switch {
		case slices.Contains(bareFlags, podArgs[i]):
			m.args = append(m.args, podArgs[i])
		case slices.Contains(keptFlags, podArgs[i]) && i+1 < len(podArgs):
			m.args = append(m.args, podArgs[i], podArgs[i+1])
			i++
		}
	}
	return m
}

// plainFlags are what the plain machine keeps of the pod's.
var plainFlags = []string{"-accel", "-m", "-kernel"}

// plain returns the machine without tuning: QEMU's default q35 board and the
// kernel's default parameters.
func (m *bareMachine) plain() *bareMachine {
	p := &bareMachine{path: m.path, args: append([]string{"-machine", "q35", "-cpu", "max", "-display", "none",
		"-append", "console=ttyS0 quiet panic=-1"}, bareFlags...)}
	for i := 0; i+1 < len(m.args); i++ {
		if slices.Contains(plainFlags, m.args[i]) || m.args[i] == "-initrd" || m.args[i] == "-serial" {
			p.args = append(p.args, m.args[i], m.args[i+1])
		}
	}
	return p
}

// writeBareInitrd compiles the init and packs it alone.
func writeBareInitrd(ctx context.Context, dir, path string) error {
	program := filepath.Join(dir, "bare-init")
	if err := harness.CompileC(ctx, initSource, program); err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read init: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make initrd: %w", err)
	}
	w := cpio.Newc.Writer(f)
	err = cpio.WriteRecords(w, []cpio.Record{cpio.StaticFile("init", string(data), 0o755)})
	if err == nil {
		err = cpio.WriteTrailer(w)
	}
	return errors.Join(err, f.Close())
}

// boot starts the machine and returns the milliseconds from the start of QEMU
// to the init's output. The machine is gone when it returns.
func (m *bareMachine) boot(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.path, m.args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	console, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("open console: %w", err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start QEMU: %w", err)
	}
	took := time.Duration(0)
	for lines := bufio.NewScanner(console); lines.Scan(); {
		if strings.Contains(lines.Text(), "INIT") {
			took = time.Since(start)
			break
		}
	}
	cancel() // the rest of its life does not matter
	_ = cmd.Wait()
	if took == 0 {
		return 0, fmt.Errorf("boot the bare kernel: its init said nothing: %s", stderr.String())
	}
	return milliseconds(took), nil
}
