package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// bed is the build machine's side: what it prepares for the emulated machine.
type bed struct {
	layout harness.Layout
	kernel *kernel
	start  time.Time
	// machines is how many machines were started.
	machines int
	// lockFile is locked as long as it is open.
	lockFile *os.File
}

func newBed(l harness.Layout) *bed { return &bed{layout: l, start: time.Now()} }

// dir holds the files that the bed makes and can make again.
func (b *bed) dir() string { return filepath.Join(b.layout.Build(), "kvmhost") }

// results holds the files that the machine brings back; it is emptied before
// each run.
func (b *bed) results() string { return filepath.Join(b.dir(), "results") }

// programs holds the suites' test programs.
func (b *bed) programs() string { return filepath.Join(b.dir(), "programs") }

// qemu returns the QEMU that emulates the machine: that of "make qemu" if it is
// there. With those before qemu.ParallelSince a machine with several CPUs can hang
// while its kernel patches its code, and where the CPUs take turns instead a pod takes
// more than four minutes to start.
func (b *bed) qemu() string {
	if path, err := b.layout.FindSavingQEMU(); err == nil {
		return path
	}
	return harness.DefaultQEMU
}

func (b *bed) init() string   { return filepath.Join(b.dir(), "init") }
func (b *bed) initrd() string { return filepath.Join(b.dir(), "initrd.img") }

// guestResults is where the machine has results mounted.
const guestResults = "/results"

// say prints a line of progress.
func (b *bed) say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "kvmhost: [%5.1fs] %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// lock keeps other beds of this checkout from running until this program exits:
// they would empty each other's results.
func (b *bed) lock() error {
	if err := os.MkdirAll(b.dir(), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	var err error
	if b.lockFile, err = os.OpenFile(filepath.Join(b.dir(), "lock"), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return fmt.Errorf("lock the bed: %w", err)
	}
	err = unix.Flock(int(b.lockFile.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("lock the bed: another one runs from this checkout")
	}
	return err
}

// prepare builds everything that is built outside the machine.
func (b *bed) prepare(ctx context.Context, suites []suite) error {
	if err := b.lock(); err != nil {
		return err
	}
	for _, dir := range []string{b.results(), b.programs()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("empty directory: %w", err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	// Logs of suites that ran inside are kept apart from those from outside.
	for _, dir := range []string{b.guestLogs(), b.layout.Logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	if len(suites) > 0 {
		if err := b.buildSuites(ctx, suites); err != nil {
			return err
		}
	}
	debs, err := kernelPackages(b.layout)
	if err != nil {
		return err
	}
	if b.kernel, err = unpackKernel(ctx, debs, b.dir()); err != nil {
		return err
	}
	if err := b.goBuild(ctx, "0", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", b.init(), "./tests/kvmhost/init"); err != nil {
		return err
	}
	return b.packInitrd(ctx)
}

// buildSuites builds the suites' test programs.
func (b *bed) buildSuites(ctx context.Context, suites []suite) error {
	for _, s := range suites {
		b.say("build the tests of %s", s.pkg)
		if err := b.goBuild(ctx, "1", "test", "-c", "-o", b.program(s), s.importPath()); err != nil {
			return err
		}
	}
	if _, err := image.Build(ctx, filepath.Join(b.layout.Build(), "images")); err != nil {
		return err
	}
	return b.goBuild(ctx, "0", "build", "-trimpath", "-buildvcs=false", "-o", b.probe(), "./tests/network/probe")
}

func (b *bed) guestLogs() string { return filepath.Join(b.results(), "logs") }

// probe returns the path of the network suite's program for containers.
func (b *bed) probe() string { return filepath.Join(b.programs(), "probe") }

func (b *bed) program(s suite) string {
	return filepath.Join(b.programs(), cmp.Or(s.program, s.name)+".test")
}

// goBuild runs go at the checkout's root.
func (b *bed) goBuild(ctx context.Context, cgo string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.layout.Root, append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (b *bed) packInitrd(ctx context.Context) error {
	first, err := b.kernel.loadOrder(ctx, firstModules)
	if err != nil {
		return err
	}
	return writeInitrd(b.initrd(), b.init(), first, wire.Setup{
		ModuleTree: b.kernel.moduleTree(),
		Wanted:     wantedModules,
		Devices:    wantedDevices,
		Keep:       []string{b.layout.Root},
		Results:    guestResults,
		Binds: map[string]string{
			b.layout.Logs(): filepath.Join(guestResults, "logs"),
			"/boot":         filepath.Join(b.kernel.base, "boot"), // with the kernel's configuration
		},
	})
}
