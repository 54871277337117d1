package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
)

// templateRNG is a device, so that a template's bridge is not empty.
func templateRNG(t testing.TB) hypervisor.RNG {
	t.Helper()
	f, err := os.Open("/dev/urandom")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return hypervisor.RNG{ID: "rng", File: f}
}

// saveTemplate boots a machine with testguest and saves it in a directory.
func saveTemplate(t testing.TB, spec hypervisor.Spec) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if spec.Jail != nil {
		if err := os.Chown(dir, testUser, testUser); err != nil {
			t.Fatal(err)
		}
	}
	spec.ID, spec.Memory = "template", hypervisor.MemoryBacking{Dir: dir, File: "memory"}
	vm := launch(t, spec)
	if err := vm.Attach(testContext(t), templateRNG(t)); err != nil {
		t.Fatal(err)
	}
	guest := vsockTo(t, vm)
	up(t, vm)
	guest.echo(t)
	if err := vm.Detach(testContext(t), "vsock0"); err != nil {
		t.Fatal(err)
	}
	state, err := os.Create(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	start := time.Now()
	if err := vm.Save(testContext(t), state); err != nil {
		t.Fatal(err)
	}
	info, err := state.Stat()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("saved %d bytes in %v", info.Size(), time.Since(start))
	if info.Size() > 1<<20 {
		t.Errorf("a state of %d bytes has memory in it", info.Size())
	}
	if err := vm.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openTemplate opens what saveTemplate made.
func openTemplate(t testing.TB, dir string) *hypervisor.Template {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	tpl := &hypervisor.Template{Devices: []hypervisor.Device{templateRNG(t)}, Memory: open("memory"), State: open("state")}
	var err error
	if tpl.MemorySum, err = memfile.Sum(tpl.Memory); err != nil {
		t.Fatal(err)
	}
	return tpl
}

// seal makes the machine from a template have private memory, which is filled at
// the last moment.
func seal(t testing.TB, tpl *hypervisor.Template) {
	t.Helper()
	info, err := tpl.Memory.Stat()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := memfile.Blank("template", info.Size())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sealed.Close() })
	memory, sum := tpl.Memory, tpl.MemorySum
	tpl.Sealed, tpl.Memory = sealed, nil
	tpl.Filled = func() error { return memfile.Fill(sealed, memory, sum) }
}

// Machines from one template are up immediately, accept devices, CPUs and
// memory like others, and are independent of each other.
func TestTemplate(t *testing.T) {
	spec := withMemory(guestSpec(t), hypervisor.MemoryDIMM)
	spec.MaxVCPUs = 2
	dir := saveTemplate(t, spec)
	for _, id := range []string{"one", "two", "private", "private-too"} {
		t.Run(id, func(t *testing.T) {
			ns := testNetns(t)
			spec.ID, spec.NetworkNamespace, spec.Template = id, netnsPath(ns), openTemplate(t, dir)
			if strings.HasPrefix(id, "private") {
				seal(t, spec.Template)
				fill := spec.Template.Filled
				spec.Template.Filled = func() error {
					checkUnwritten(t, spec.Template.Sealed)
					return fill()
				}
			}
			start := time.Now()
			vm := launch(t, spec)
			launched := time.Since(start)
			if private := hypervisor.OwnerOf(vm) != nil; private != (spec.Template.Sealed != nil) {
				t.Fatalf("the machine's memory is private: %v", private)
			}
			if path, err := vm.PCIPath("rng"); path != "01/01" || err != nil {
				t.Errorf("the template's device is at %q, %v", path, err)
			}
			guest := vsockTo(t, vm)
			nic := testNIC(t, ns, "nic", 1)
			plug(t, vm, nic, "01/09")
			if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "share", Tag: "t", Socket: shareSocket(t)}); err != nil {
				t.Fatal(err)
			}
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			guest.echo(t)
			t.Logf("launched after %v, answers after %v", launched, time.Since(start))
			awaitConsole(t, vm, saw("add", "01/09", nic.MAC.String()))
			setMemory(t, vm, 384, 384)
			awaitConsole(t, vm, "testguest: memory +128 MiB")
			setVCPUs(t, vm, 2, 2)
			unplug(t, vm, "nic")
			guest.echo(t)
		})
	}
}

// A bad template fails the launch, with the reason, and leaves no process.
func TestBadTemplate(t *testing.T) {
	spec := guestSpec(t)
	dir := saveTemplate(t, spec)
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		harm  func(*hypervisor.Spec)
		state []byte
		want  string
	}{
		"memory damaged": {func(s *hypervisor.Spec) { s.Template.MemorySum++ }, state, "is damaged"},
		"other memory":   {func(s *hypervisor.Spec) { s.MemoryMiB = 512 }, state, ""},
		"state cut":      {func(*hypervisor.Spec) {}, state[:len(state)/2], ""},
		"state lost":     {func(*hypervisor.Spec) {}, nil, ""},
		"no state":       {func(*hypervisor.Spec) {}, []byte(strings.Repeat("katabox ", 1000)), ""},
		"device missing": {func(s *hypervisor.Spec) { s.Template.Devices = nil }, state, ""},
		"memory not filled": {func(s *hypervisor.Spec) {
			s.Jail = &hypervisor.Jail{UID: testUser, GID: testUser}
			s.Template.MemorySum++
			seal(t, s.Template)
		}, state, "is damaged"},
		"memory of files": {func(s *hypervisor.Spec) { s.Memory.Prealloc = true }, state, "a machine from a template"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			spec.Template = openTemplate(t, dir)
			path := filepath.Join(t.TempDir(), "state")
			if err := os.WriteFile(path, tt.state, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			spec.Template.State = f
			tt.harm(&spec)
			vm, err := New(Options{}).Launch(testContext(t), spec)
			if err == nil {
				_ = vm.Stop(testContext(t))
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("launch: %v", err)
			}
			t.Log(err)
		})
	}
}
