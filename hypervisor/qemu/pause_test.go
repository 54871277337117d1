package qemu

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
)

// A paused machine does without its memory until it is given back: connections,
// plugged memory and devices are then as they were.
func TestPauseWithoutMemory(t *testing.T) {
	vm := launch(t, withMemory(guestSpec(t), hypervisor.MemoryDIMM))
	guest := vsockTo(t, vm)
	up(t, vm)
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
		files, err := vm.MemoryFiles(testContext(t))
		if err != nil || len(files) != 2 {
			t.Fatalf("%d files of memory, %v, want the boot memory's and the module's", len(files), err)
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
		closeAll(files)
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
func discard(t *testing.T, files []*os.File) {
	t.Helper()
	for _, f := range files {
		if err := memfile.Discard(f); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks != 0 {
			t.Errorf("%d KiB of memory are left, %v", st.Blocks/2, err)
		}
	}
}

// Memory of another kind is refused.
func TestMemoryFilesOfOtherKinds(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	spec.Memory = hypervisor.MemoryBacking{Prealloc: true}
	if _, err := launch(t, spec).MemoryFiles(testContext(t)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("preallocated memory: %v", err)
	}
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	if err := vm.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if files, err := vm.MemoryFiles(testContext(t)); err == nil {
		t.Errorf("%d files of a machine that has ended", len(files))
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
