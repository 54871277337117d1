package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// ask sends testguest a question and returns its answer.
func (g guestVsock) ask(t testing.TB, question string) string {
	t.Helper()
	const testguestAsk = 2
	ctx := testContext(t)
	conn, err := g.Dial(ctx, testguestAsk)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, question+"\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn)
	if question == "panic" {
		return "" // the connection ends with the guest
	}
	if err != nil || strings.HasPrefix(string(reply), "error: ") {
		t.Fatalf("%s: %s, %v", question, reply, err)
	}
	return string(reply)
}

// The guest's random numbers are those of the file.
func TestRNGInGuest(t *testing.T) {
	spec := guestSpec(t)
	if !guestHas(t, "virtio-rng") {
		t.Skip("the guest image has no module virtio-rng")
	}
	source := filepath.Join(t.TempDir(), "source")
	if err := unix.Mkfifo(source, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(source, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(source, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for {
			if _, err := writer.WriteString("katabox!"); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = writer.Close(); <-written })
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	if err := vm.Attach(testContext(t), hypervisor.RNG{ID: "rng", File: reader}); err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	up(t, vm)
	if got := guest.ask(t, "rng"); !strings.HasPrefix(got, "virtio_rng.0 ") || !strings.Contains(got, "katabox!") {
		t.Errorf("the guest reads %q", got)
	}
	if err := vm.Detach(testContext(t), "rng"); err != nil {
		t.Error(err)
	}
	noDisks(t, vm) // nor a descriptor of the file
}

// memoryBlocks returns how much of the host's memory the machine's boot memory
// takes, in bytes.
func memoryBlocks(t testing.TB, vm *VM, name string) int64 {
	t.Helper()
	return blocksOf(t, memoryPath(t, vm, name))
}

// memoryPath returns the path by which QEMU has its boot memory open.
func memoryPath(t testing.TB, vm *VM, name string) string {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", vm.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); strings.HasPrefix(target, name) {
			return fd
		}
	}
	t.Fatalf("QEMU has no file %s", name)
	return ""
}

func blocksOf(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Error(err)
	}
	return st.Blocks * 512
}

// mostBlocks watches how much memory the file takes until the function that it
// returns is called, which returns the most, or until the file is gone.
func mostBlocks(path string) func() int64 {
	stop, most := make(chan struct{}), make(chan int64, 1)
	go func() {
		var st unix.Stat_t
		seen := int64(0)
		for {
			if unix.Stat(path, &st) != nil {
				most <- seen
				return
			}
			seen = max(seen, st.Blocks*512)
			select {
			case <-stop:
				most <- seen
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

const memfd = "/memfd:memory-backend-memfd"

// Memory that the guest has used and freed goes back to the host.
func TestBalloonGivesMemoryBack(t *testing.T) {
	spec := guestSpec(t)
	if !guestHas(t, "virtio_balloon") {
		t.Skip("the guest image has no module virtio_balloon")
	}
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	if err := vm.Attach(testContext(t), hypervisor.Balloon{ID: "balloon"}); err != nil {
		t.Fatal(err)
	}
	up(t, vm)
	path := memoryPath(t, vm, memfd)
	stop := mostBlocks(path) // it may give memory back before it answers
	guest.ask(t, "memory")
	most := stop()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		now := blocksOf(t, path)
		if now <= most-80<<20 {
			t.Logf("%d of %d MiB are left", now>>20, most>>20)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest still takes %d MiB of the host's, at most it was %d", now>>20, most>>20)
		}
		time.Sleep(50 * time.Millisecond) // nothing signals it: the guest's kernel reports every 2 s
	}
	guest.echo(t)
}

// hugePages adds n huge pages of 2 MiB to the host's, until the test ends.
func hugePages(t testing.TB, n int) {
	t.Helper()
	const file = sysHugePages + "/hugepages-2048kB/nr_hugepages"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("this host has no huge pages: %v", err)
	}
	before, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int) error { return os.WriteFile(file, []byte(strconv.Itoa(n)), 0) }
	t.Cleanup(func() {
		if err := write(before); err != nil {
			t.Error(err)
		}
	})
	if err := write(before + n); err != nil {
		t.Skipf("no huge pages can be reserved: %v", err)
	}
	if err := freeHugePages(sysHugePages, 2, uint64(2*n)); err != nil {
		t.Skipf("no huge pages can be reserved: %v", err)
	}
}

// memoryDir is a directory in the host's memory.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "katabox-test-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A machine with each kind of memory works with back ends in other processes,
// and grows.
func TestMemoryBackings(t *testing.T) {
	for name, tt := range map[string]struct {
		backing hypervisor.MemoryBacking
		model   hypervisor.MemoryModel
		file    string
		full    bool
	}{
		"huge pages":                        {hypervisor.MemoryBacking{HugePageMiB: 2}, hypervisor.MemoryDIMM, memfd, true},
		"huge pages with virtio-mem":        {hypervisor.MemoryBacking{HugePageMiB: 2}, hypervisor.MemoryVirtio, memfd, true},
		"at once":                           {hypervisor.MemoryBacking{Prealloc: true}, hypervisor.MemoryDIMM, memfd, true},
		"at once with virtio-mem":           {hypervisor.MemoryBacking{Prealloc: true}, hypervisor.MemoryVirtio, memfd, true},
		"a file":                            {hypervisor.MemoryBacking{Dir: t.TempDir()}, hypervisor.MemoryDIMM, "/memory/", false},
		"a file of a file system in memory": {hypervisor.MemoryBacking{Dir: memoryDir(t), Prealloc: true}, hypervisor.MemoryDIMM, "/memory/", true},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.backing.HugePageMiB != 0 {
				hugePages(t, (256+128)/2)
			}
			spec := withMemory(guestSpec(t), tt.model)
			spec.Memory = tt.backing
			if spec.Memory.Dir != "" && spec.Jail != nil {
				if err := os.Chown(spec.Memory.Dir, testUser, testUser); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			vm := launch(t, spec)
			t.Logf("launched in %v", time.Since(start))
			if now := memoryBlocks(t, vm, tt.file); (now >= 256<<20) != tt.full {
				t.Errorf("%d MiB are taken at the start", now>>20)
			}
			guest := vsockTo(t, vm)
			if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "share", Tag: "t", Socket: shareSocket(t)}); err != nil {
				t.Fatal(err)
			}
			up(t, vm)
			guest.echo(t)
			setMemory(t, vm, 384, 384)
			awaitConsole(t, vm, "testguest: memory +128 MiB")
			guest.echo(t)
			if tt.backing.HugePageMiB != 0 {
				_, err := vm.SetMemoryMiB(testContext(t), 1024, 1024)
				if err == nil || !strings.Contains(err.Error(), "640 MiB of memory are 320 huge pages of 2 MiB, of which the host has") {
					t.Errorf("more huge pages than there are: %v", err)
				}
				guest.echo(t)
			}
			if tt.backing.HugePageMiB != 0 && tt.model == hypervisor.MemoryVirtio {
				setMemory(t, vm, 256, 256)
				if err := freeHugePages(sysHugePages, 2, 128); err != nil {
					t.Errorf("what the guest gave back: %v", err)
				}
				guest.echo(t)
			}
			if err := vm.Stop(testContext(t)); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(tt.backing.Dir); tt.backing.Dir != "" && (err != nil || len(left) != 0) {
				t.Errorf("left in the directory: %v, %v", left, err)
			}
		})
	}
}

func TestTooFewHugePages(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	spec.MemoryMiB, spec.Memory.HugePageMiB = 1<<24, 2
	vm, err := New(Options{}).Launch(testContext(t), spec)
	if err == nil {
		_ = vm.Stop(testContext(t))
	}
	if err == nil || !strings.Contains(err.Error(), "/nr_hugepages") && !strings.Contains(err.Error(), "no huge pages") {
		t.Errorf("launch: %v", err)
	}
}

func TestNoDirectoryForMemory(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	spec.Memory.Dir = "/nonexistent"
	if _, err := New(Options{}).Launch(testContext(t), spec); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("launch: %v", err)
	}
}

// Disks of both buses work in their own threads, and can be detached.
func TestDisksInThreads(t *testing.T) {
	for _, b := range []hypervisor.DiskBus{hypervisor.VirtioBlk, hypervisor.VirtioSCSI} {
		t.Run(string(b), func(t *testing.T) {
			spec := guestSpec(t)
			spec.DiskThreads = 2
			vm := launch(t, spec)
			first := testDisk(t, "first", b)
			attachDisk(t, vm, first)
			up(t, vm)
			awaitConsole(t, vm, sawDisk(t, vm, first))
			for i := range 3 {
				d := testDisk(t, "d"+strconv.Itoa(i), b)
				attachDisk(t, vm, d)
				awaitConsole(t, vm, sawDisk(t, vm, d))
				guestWrote(t, d)
				gone := "testguest: remove disk " + where(t, vm, d.ID)
				if err := vm.Detach(testContext(t), d.ID); err != nil {
					t.Fatal(err)
				}
				awaitConsole(t, vm, gone)
			}
			guestWrote(t, first)
			var threads []struct{ ID string }
			if err := vm.mon.Execute(testContext(t), "query-iothreads", nil, &threads); err != nil || len(threads) != 2 {
				t.Errorf("threads: %v, %v", threads, err)
			}
			if err := vm.Detach(testContext(t), "first"); err != nil {
				t.Error(err)
			}
			noDisks(t, vm)
		})
	}
}

// The extra monitor answers in its protocol while the QMP connection is in use.
func TestExtraMonitor(t *testing.T) {
	for language, want := range map[hypervisor.MonitorLanguage]string{
		hypervisor.MonitorHMP: "(qemu)", hypervisor.MonitorQMP: `{"QMP": {`, hypervisor.MonitorQMPPretty: "{\r\n    \"QMP\"",
	} {
		spec := testSpec(t, testKernel(t, "", idle))
		spec.ExtraMonitor = hypervisor.ExtraMonitor{Language: language, Path: filepath.Join(t.TempDir(), "m,sock")}
		vm := launch(t, spec)
		conn, err := net.Dial("unix", spec.ExtraMonitor.Path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		var got []byte
		for buf := make([]byte, 1024); !strings.Contains(string(got), want); {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%s says %q and %v", language, got, err)
			}
			got = append(got, buf[:n]...)
		}
		_ = conn.Close()
		if err := vm.Resume(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}

// The memory of a guest whose kernel panics is saved, and the machine ends.
func TestPanicDump(t *testing.T) {
	spec := guestSpec(t)
	if !guestHas(t, "pvpanic-pci") {
		t.Skip("the guest image has no module pvpanic-pci")
	}
	spec.PanicDump = hypervisor.PanicDump{Dir: filepath.Join(t.TempDir(), "a", "b")}
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	up(t, vm)
	guest.ask(t, "panic")
	awaitDone(t, vm)
	err := vm.Err()
	files, globErr := filepath.Glob(filepath.Join(spec.PanicDump.Dir, "vmcore-*.elf"))
	if globErr != nil || len(files) != 1 {
		t.Fatalf("dumps: %q, %v; the machine ended: %v; console: %s", files, globErr, err, vm.ConsoleTail())
	}
	if !errors.Is(err, hypervisor.ErrPowerOff) || !strings.Contains(err.Error(), "its kernel panicked, its memory is in "+files[0]) {
		t.Errorf("Err: %v", err)
	}
	head := make([]byte, 4)
	f := openDisk(t, files[0], os.O_RDONLY)
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != "\x7fELF" || info.Size() < 256<<20 || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %d bytes, mode %v, %v", head, info.Size(), info.Mode(), err)
	}
}

// A dump that cannot be written also ends the machine, and the error says why.
func TestPanicDumpFails(t *testing.T) {
	spec := guestSpec(t)
	if !guestHas(t, "pvpanic-pci") {
		t.Skip("the guest image has no module pvpanic-pci")
	}
	notDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec.PanicDump = hypervisor.PanicDump{Dir: notDir, Paging: true}
	vm := launch(t, spec)
	guest := vsockTo(t, vm)
	up(t, vm)
	guest.ask(t, "panic")
	awaitDone(t, vm)
	if err := vm.Err(); !errors.Is(err, hypervisor.ErrPowerOff) || !strings.Contains(err.Error(), "its memory is not saved: make directory for dump") {
		t.Errorf("Err: %v", err)
	}
}
