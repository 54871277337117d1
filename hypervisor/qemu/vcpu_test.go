package qemu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
)

// vcpuThreads finds the vCPU threads by the names that QEMU gives them (-name
// debug-threads=on).
func vcpuThreads(t *testing.T, pid int) []int {
	t.Helper()
	comms, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, comm := range comms {
		name, err := os.ReadFile(comm)
		if err != nil || !strings.HasPrefix(string(name), "CPU ") && !strings.HasPrefix(string(name), "ALL CPUs") {
			continue
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(comm)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// QEMU runs in its own PID namespace, and reports its ids there.
func TestVCPUThreads(t *testing.T) {
	for _, n := range []struct {
		vcpus, most uint32
		threading   hypervisor.Threading
	}{
		{1, 1, hypervisor.ThreadingMulti},
		{2, 2, hypervisor.ThreadingMulti},
		{1, 3, hypervisor.ThreadingMulti},
		{2, 2, hypervisor.ThreadingSingle},
		{1, 3, hypervisor.ThreadingSingle},
	} {
		spec := testSpec(t, testKernel(t, "", idle))
		spec.VCPUs, spec.MaxVCPUs, spec.Threading = n.vcpus, n.most, n.threading
		vm := launch(t, spec)
		got, used, err := vm.VCPUThreads(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		// QEMU starts the threads of the boot vCPUs in order.
		if diff := cmp.Diff(vcpuThreads(t, vm.PID()), got); diff != "" || len(got) == 0 || slices.Contains(got, vm.PID()) {
			t.Errorf("%d vCPUs of process %d: threads %v: %s", n.vcpus, vm.PID(), got, diff)
		}
		want := int(n.vcpus)
		if spec.Accel == hypervisor.AccelTCG && n.threading == hypervisor.ThreadingSingle {
			want = 1
		}
		if spec.Accel == hypervisor.AccelKVM && used != len(got) || used != want {
			t.Errorf("%+v: %d of %d threads are used", n, used, len(got))
		}
	}
}

// Threads are listed in the order of their vCPUs, whatever QEMU's order.
func TestInOrder(t *testing.T) {
	ids := map[int]int{5: 105, 6: 106, 7: 107}
	for _, tt := range []struct {
		cpus []vcpu
		want []int
	}{
		{nil, nil},
		{[]vcpu{{2, 5}, {0, 6}, {1, 7}}, []int{106, 107, 105}},
		{[]vcpu{{1, 5}, {0, 5}}, []int{105}},
		{[]vcpu{{2, 6}, {1, 5}, {0, 6}}, []int{106, 105}},
	} {
		got, err := inOrder(tt.cpus, ids)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%v: %v, %s", tt.cpus, err, diff)
		}
	}
	if got, err := inOrder([]vcpu{{0, 5}, {1, 8}}, ids); err == nil || !strings.Contains(err.Error(), "no thread 8") {
		t.Errorf("a thread that is not there: %v, %v", got, err)
	}
}

// Only threads of QEMU's process are accepted.
func TestVCPUThreadsOfOthers(t *testing.T) {
	var answer atomic.Value
	vm := scriptAnswers(t, func(*qmptest.Server, qmptest.Request) any { return json.RawMessage(answer.Load().(string)) })
	for _, tt := range []struct {
		answer string
		want   []int
	}{
		{"[]", nil},
		{fmt.Sprintf(`[{"cpu-index":0,"thread-id":%d},{"cpu-index":1,"thread-id":%[1]d}]`, vm.PID()), []int{vm.PID()}},
	} {
		answer.Store(tt.answer)
		got, _, err := vm.VCPUThreads(testContext(t))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", tt.answer, err, diff)
		}
	}
	for _, wrong := range []string{`[{"thread-id":1}]`, `[{"thread-id":-1}]`, `[{}]`, `{}`, `[{"thread-id":"x"}]`} {
		answer.Store(wrong)
		if got, _, err := vm.VCPUThreads(testContext(t)); err == nil {
			t.Errorf("%s: %v", wrong, got)
		}
	}
}

func TestInnermost(t *testing.T) {
	for status, want := range map[string]int{
		"Name:\tq\nNSpid:\t77\t5\nNSpgid:\t77\t5\n": 5,
		"NSpid:\t77\n": 77,
		"NSpid:\n":     9,
		"NSpid:\tx\n":  9,
		"Pid:\t77\n":   9,
		"":             9,
	} {
		if got := innermost([]byte(status), 9); got != want {
			t.Errorf("%q: %d, want %d", status, got, want)
		}
	}
}
