package hostcgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeProc is a /proc with kernel threads, for which processes of the test stand.
type fakeProc struct {
	dir      string
	children []string
}

func newFakeProc(t *testing.T) *fakeProc {
	t.Helper()
	return &fakeProc{dir: t.TempDir()}
}

// has adds a process.
func (p *fakeProc) has(t *testing.T, id int, name string, flags, began uint64) {
	t.Helper()
	stat := fmt.Sprintf("%d (%s) S 2 0 0 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", id, name, flags, began)
	writeFile(t, filepath.Join(p.dir, strconv.Itoa(id), "stat"), stat)
}

// child adds a child of kthreadd, for which a new process stands.
func (p *fakeProc) child(t *testing.T, name string, flags, began uint64) (id int) {
	t.Helper()
	id = sleeper(t)
	p.has(t, id, name, flags, began)
	p.lists(t, id)
	return id
}

// lists adds to kthreadd's children.
func (p *fakeProc) lists(t *testing.T, id int) {
	t.Helper()
	p.children = append(p.children, strconv.Itoa(id))
	writeFile(t, filepath.Join(p.dir, "2/task/2/children"), strings.Join(p.children, " ")+" ")
}

// The kernel's threads that work for a VM's vhost devices go where its process goes;
// others stay.
func TestVhostWorkers(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s, proc := newScene(t, root, false), newFakeProc(t)
		s.proc = proc.dir
		vm, vcpu := sleeper(t), startThread(t)
		name := fmt.Sprintf("vhost-%d", vm)
		proc.has(t, vm, "qemu (1) S 2", 0, 500)
		stay := map[string]int{
			"older than the VM": proc.child(t, name, kernelFlag, 499),
			"another VM's":      proc.child(t, name+"1", kernelFlag, 500),
			"not the kernel's":  proc.child(t, name, 0, 501),
		}
		workers := []int{proc.child(t, name, kernelFlag|64, 500), proc.child(t, name, kernelFlag, 502)}
		proc.lists(t, 1<<23) // one that has ended since
		proc.has(t, 1<<23+1, name, kernelFlag, 503)
		proc.lists(t, 1<<23+1) // one that ends after that
		before := s.where(t, vm)
		if short, err := s.addVM(t, VM{PID: vm, VCPUs: []int{vcpu}, Memory: 1 << 20}); short != (Short{}) || err != nil {
			t.Fatalf("AddVM: short by %v, %v", short, err)
		}
		for _, id := range workers {
			s.check(t, "worker", id, s.want("overhead", "memory"))
		}
		for what, id := range stay {
			s.check(t, what, id, before)
		}
		// One of a device that was attached before the VM leaves the pod's cgroup again.
		workers = append(workers, proc.child(t, name, kernelFlag, 600))
		if _, err := s.addVM(t, VM{PID: vm, VCPUs: []int{vcpu}, Memory: NoLimit}); err != nil {
			t.Fatal(err)
		}
		for _, id := range workers {
			s.check(t, "worker of a VM that was moved", id, s.where(t, vm))
		}
	})
}

// Only the threads that are younger than the VM are read: a host may have thousands.
func TestOlderThreadsAreNotRead(t *testing.T) {
	proc := newFakeProc(t)
	c := &Cgroup{proc: proc.dir}
	proc.has(t, 50, "qemu", 0, 500)
	for id, began := range []uint64{400, 499, 500, 501} {
		proc.has(t, 100+id, "vhost-50", kernelFlag, began)
		proc.lists(t, 100+id)
	}
	writeFile(t, filepath.Join(proc.dir, "100/stat"), "nothing")
	got, err := c.workersOf(50)
	if diff := cmp.Diff([]int{103, 102}, got); diff != "" || err != nil {
		t.Errorf("workers (-want +got):\n%s%v", diff, err)
	}
	writeFile(t, filepath.Join(proc.dir, "103/stat"), "nothing")
	if _, err := c.workersOf(50); err == nil || !strings.Contains(err.Error(), "process 103: its stat has") {
		t.Errorf("with a stat that is none: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(proc.dir, "2")); err != nil {
		t.Fatal(err)
	}
	if got, err := c.workersOf(50); got != nil || err != nil {
		t.Errorf("without the list: %v, %v", got, err)
	}
}

// This host's own threads can be read.
func TestThreadsOfThisHost(t *testing.T) {
	c := &Cgroup{proc: "/proc"}
	if got, err := c.workersOf(os.Getpid()); got != nil || err != nil {
		t.Errorf("workers %v, %v", got, err)
	}
	self, err := c.taskOf("self")
	if err != nil || self.id != os.Getpid() || self.kernel || self.began == 0 {
		t.Errorf("this process: %+v, %v", self, err)
	}
}

func FuzzParseTask(f *testing.F) {
	for _, s := range []string{"", "1 (", "1 (a) S", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 18 0 0\n"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseTask(s) })
}
