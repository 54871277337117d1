package qemu

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
)

// A paused machine does without its memory until it is given back: connections,
// plugged memory and devices are then as they were.
func TestPauseWithoutMemory(t *testing.T) {
	spec := withMemory(guestSpec(t), hypervisor.MemoryDIMM)
	t.Run("own", func(t *testing.T) { pauseWithoutMemory(t, spec) })
	t.Run("private", func(t *testing.T) {
		spec.Template = openTemplate(t, saveTemplate(t, spec))
		seal(t, spec.Template)
		pauseWithoutMemory(t, spec)
	})
}

func pauseWithoutMemory(t *testing.T, spec hypervisor.Spec) {
	t.Helper()
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	if spec.Template == nil {
		up(t, vm)
	} else { // its guest is up
		if err := vm.Resume(testContext(t)); err != nil {
			t.Fatal(err)
		}
		guest.echo(t)
	}
	setMemory(t, vm, 384, 384)
	awaitConsole(t, vm, "testguest: memory +128 MiB")
	const testguestEcho = 1
	conn, err := guest.Dial(testContext(t), testguestEcho)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		guest.Hold(true)
		if err := vm.Pause(testContext(t)); err != nil {
			t.Fatal(err)
		}
		files, err := vm.MemoryParts(testContext(t))
		if err != nil || len(files) != 2 {
			t.Fatalf("%d parts of memory, %v, want the boot memory's and the module's", len(files), err)
		}
		var image bytes.Buffer
		key := memfile.Key{1}
		stored, err := memfile.StoreImage(testContext(t), &image, key, files, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		discard(t, files)
		if err := memfile.RestoreImage(testContext(t), &image, key, files); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d MiB of memory in an image of %d MiB", stored.Memory>>20, stored.Image>>20)
		if err := vm.Resume(testContext(t)); err != nil {
			t.Fatal(err)
		}
		guest.Hold(false)
		closeParts(files)
		back := make([]byte, 5)
		if _, err := conn.Write([]byte("still")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, back); err != nil || string(back) != "still" {
			t.Errorf("the connection from before: %q, %v", back, err)
		}
		guest.echo(t)
	}
}

// discard gives the memory back and checks that.
func discard(t *testing.T, parts []memfile.Memory) {
	t.Helper()
	for _, p := range parts {
		if err := p.Discard(t.Context()); err != nil {
			t.Fatal(err)
		}
		if used, err := p.Used(); err != nil || used != 0 {
			t.Errorf("%d KiB of %s are left, %v", used>>10, p.Name(), err)
		}
	}
}

func closeParts(parts []memfile.Memory) {
	for _, p := range parts {
		_ = p.Close()
	}
}

// Memory of another kind is refused.
func TestMemoryPartsOfOtherKinds(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	spec.Memory = hypervisor.MemoryBacking{Prealloc: true}
	if _, err := launch(t, spec).MemoryParts(testContext(t)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("preallocated memory: %v", err)
	}
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	if err := vm.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if files, err := vm.MemoryParts(testContext(t)); err == nil {
		t.Errorf("%d parts of a machine that has ended", len(files))
	}
}

// A file that is not in memory is not read: it could block.
func TestCheckMemfd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []*os.File{r, null} {
		if err := checkMemfd(int(f.Fd())); err == nil {
			t.Errorf("%s was accepted", f.Name())
		}
	}
	fd, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := checkMemfd(fd); err != nil {
		t.Error(err)
	}
}

// A QEMU that is stopped gives no answer, and one that is paused does.
func TestAnswer(t *testing.T) {
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	if err := vm.Pause(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := vm.Answer(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(vm.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(vm.PID(), unix.SIGCONT) }()
	ctx, cancel := context.WithTimeout(testContext(t), 500*time.Millisecond)
	defer cancel()
	if err := vm.Answer(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stopped QEMU: %v", err)
	}
}
