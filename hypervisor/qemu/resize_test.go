package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// board is a fake QEMU that tracks what is plugged.
type board struct {
	mu        sync.Mutex // guards all below
	cpus      [4]string  // by socket: where QEMU has it
	dimms     []string
	base      uint64 // bytes, at least 512 MiB
	plugged   uint64 // bytes
	requested uint64 // of the last module, or of virtio-mem
	lazy      bool   // the guest does not plug virtio-mem memory, until catchUp
	keeps     string // the CPU that the guest does not release
	refuse    string // a command
}

func (b *board) answer(s *qmptest.Server, r qmptest.Request) any {
	var args struct {
		Driver, ID, Path string
		Socket           int `json:"socket-id"`
		Size, Value      uint64
	}
	_ = json.Unmarshal(r.Arguments, &args)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.Execute == b.refuse:
		return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: outOfLuck}
	case r.Execute == "query-hotpluggable-cpus":
		return b.hotpluggable()
	case r.Execute == "query-memory-size-summary":
		return map[string]uint64{"base-memory": max(b.base, 512<<20), "plugged-memory": b.plugged}
	case r.Execute == "query-memory-devices":
		return append([]string{}, b.dimms...)
	case r.Execute == "object-add" && !strings.Contains(args.ID, virtioMem):
		b.requested = args.Size
	case r.Execute == "device_add" && args.Driver == "pc-dimm":
		b.dimms = append(b.dimms, args.ID)
		b.plugged += b.requested
	case r.Execute == "device_add" && args.Driver == "a-cpu":
		b.cpus[args.Socket] = peripheral + args.ID
	case r.Execute == "device_del":
		return b.unplug(s, args.ID)
	case r.Execute == "qom-set":
		b.requested = args.Value
		if !b.lazy {
			b.plugged = args.Value
		}
	case r.Execute == "qom-get":
		return b.plugged
	}
	return yes
}

// change changes the behaviour of QEMU or the guest.
func (b *board) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// catchUp has the guest do what is requested of it, as Linux does when it tries again.
func (b *board) catchUp() {
	b.change(func() { b.plugged = b.requested })
}

// hotpluggable lists the highest socket first, as QEMU does.
func (b *board) hotpluggable() any {
	var all []map[string]any
	for i := len(b.cpus) - 1; i >= 0; i-- {
		c := map[string]any{"type": "a-cpu", "props": map[string]int{"socket-id": i, "core-id": 0, "thread-id": 0}}
		if b.cpus[i] != "" {
			c["qom-path"] = b.cpus[i]
		}
		all = append(all, c)
	}
	return all
}

func (b *board) unplug(s *qmptest.Server, id string) any {
	ost := func(info map[string]any) { s.Send(qmptest.Event("ACPI_DEVICE_OST", map[string]any{"info": info})) }
	ost(map[string]any{"device": id, "source": 3, "status": 0x84})
	if id == b.keeps {
		ost(map[string]any{"device": id, "source": 3, "status": 1})
		return yes
	}
	for i := range b.cpus {
		if b.cpus[i] == peripheral+id {
			b.cpus[i] = ""
		}
	}
	s.Send(qmptest.Event("DEVICE_DELETED", map[string]any{"path": peripheral + id + "/lapic"}))
	return yes
}

// scriptBoard is a running machine of 512 MiB and a CPU, with room for more.
func scriptBoard(t *testing.T, b *board, model hypervisor.MemoryModel) *scripted {
	t.Helper()
	b.cpus[0] = "/machine/unattached/device[0]"
	vm := scriptAnswers(t, b.answer)
	vm.spec = hypervisor.Spec{
		VCPUs: 1, MaxVCPUs: 3, MemoryMiB: 512, MaxMemoryMiB: 1100, MemoryModel: model, MemorySlots: 3,
		Accel: hypervisor.AccelKVM,
	}
	resume(t, vm)
	return vm
}

// changes returns the commands sent, without queries.
func (s *scripted) changes() []string {
	var all []string
	for _, c := range s.sent() {
		if !strings.HasPrefix(c, "query-") && !strings.HasPrefix(c, "qom-get") && c != cont {
			all = append(all, c)
		}
	}
	return all
}

func addCPU(n int) string {
	return fmt.Sprintf(`device_add {"core-id":0,"driver":"a-cpu","id":"pod.cpu.%d","socket-id":%d,"thread-id":0}`, n, n)
}

func delCPU(n int) string { return fmt.Sprintf(`device_del {"id":"pod.cpu.%d"}`, n) }

func TestSetVCPUs(t *testing.T) {
	b := &board{}
	vm := scriptBoard(t, b, "")
	setVCPUs(t, vm.VM, 2, 2)
	setVCPUs(t, vm.VM, 2, 2)
	setVCPUs(t, vm.VM, 100, 3)
	setVCPUs(t, vm.VM, 0, 1)
	setVCPUs(t, vm.VM, 3, 3)
	b.change(func() { b.keeps = "pod.cpu.2" })
	setVCPUs(t, vm.VM, 1, 3)
	b.change(func() { b.refuse = "device_del" })
	if now, err := vm.SetVCPUs(testContext(t), 1); now != 3 || err == nil || !strings.Contains(err.Error(), outOfLuck) {
		t.Errorf("refused: %d, %v", now, err)
	}
	want := []string{addCPU(1), addCPU(2), delCPU(2), delCPU(1), addCPU(1), addCPU(2), delCPU(2), delCPU(2)}
	if diff := cmp.Diff(want, vm.changes()); diff != "" {
		t.Error(diff)
	}
}

// With TCG nothing is plugged, and a CPU once given stays.
func TestVCPUsStayWithTCG(t *testing.T) {
	vm := scriptBoard(t, &board{}, "")
	vm.spec.Accel = hypervisor.AccelTCG
	setVCPUs(t, vm.VM, 0, 1)
	setVCPUs(t, vm.VM, 2, 2)
	setVCPUs(t, vm.VM, 9, 3)
	setVCPUs(t, vm.VM, 1, 3)
	if diff := cmp.Diff([]string(nil), vm.changes()); diff != "" {
		t.Error(diff)
	}
}

// The wait for a guest that does nothing ends with the caller's context.
func TestSetVCPUsGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	b := &board{}
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		if r.Execute == "device_del" {
			cancel()
			return yes
		}
		return b.answer(s, r)
	})
	vm.spec = hypervisor.Spec{VCPUs: 1, MaxVCPUs: 4, Accel: hypervisor.AccelKVM}
	resume(t, vm)
	setVCPUs(t, vm.VM, 4, 4)
	if now, err := vm.SetVCPUs(ctx, 1); now != 4 || err != nil {
		t.Errorf("SetVCPUs: %d, %v", now, err)
	}
	if _, err := vm.SetVCPUs(ctx, 1); err == nil {
		t.Error("SetVCPUs after its time")
	}
}

func TestSetMemoryDIMM(t *testing.T) {
	b := &board{}
	vm := scriptBoard(t, b, hypervisor.MemoryDIMM)
	setMemory(t, vm.VM, 0, 512)
	setMemory(t, vm.VM, 513, 640)
	setMemory(t, vm.VM, 0, 640)
	setMemory(t, vm.VM, 2000, 1024) // 1100 less what is not a multiple
	setMemory(t, vm.VM, 2000, 1024)
	want := []string{
		`object-add {"id":"pod.dimm.0.memory","qom-type":"memory-backend-memfd","share":true,"size":134217728}`,
		`device_add {"driver":"pc-dimm","id":"pod.dimm.0","memdev":"pod.dimm.0.memory"}`,
		`object-add {"id":"pod.dimm.1.memory","qom-type":"memory-backend-memfd","share":true,"size":402653184}`,
		`device_add {"driver":"pc-dimm","id":"pod.dimm.1","memdev":"pod.dimm.1.memory"}`,
	}
	if diff := cmp.Diff(want, vm.changes()); diff != "" {
		t.Error(diff)
	}
}

// Later modules are larger than needed, because there can be few.
func TestSetMemoryManyTimes(t *testing.T) {
	vm := scriptBoard(t, &board{}, hypervisor.MemoryDIMM)
	vm.spec.MaxMemoryMiB, vm.spec.MemorySlots = 3072, 7
	setMemory(t, vm.VM, 640, 640)
	setMemory(t, vm.VM, 768, 768)
	setMemory(t, vm.VM, 896, 896)
	setMemory(t, vm.VM, 1024, 1024)
	setMemory(t, vm.VM, 1152, 1536) // 512 were plugged before
	setMemory(t, vm.VM, 1536, 1536)
	setMemory(t, vm.VM, 1664, 2560)
	setMemory(t, vm.VM, 2688, 3072)
}

// What a later module adds beyond the request is no more than the caller allows.
func TestSetMemoryUpToMost(t *testing.T) {
	vm := scriptBoard(t, &board{}, hypervisor.MemoryDIMM)
	vm.spec.MaxMemoryMiB, vm.spec.MemorySlots = 4096, 8
	for n := uint64(640); n <= 1024; n += 128 {
		setMemory(t, vm.VM, n, n)
	}
	for _, test := range []struct{ n, most, want uint64 }{
		{1152, 1300, 1280}, {1300, 1400, 1408}, {1536, 0, 1536}, {1664, 1 << 40, 2560},
	} {
		if now, err := vm.SetMemoryMiB(testContext(t), test.n, test.most); now != test.want || err != nil {
			t.Errorf("SetMemoryMiB(%d, %d): %d, %v, want %d", test.n, test.most, now, err, test.want)
		}
	}
}

// A guest with much memory takes modules only in large blocks.
func TestSetMemoryOfLargeMachine(t *testing.T) {
	vm := scriptBoard(t, &board{base: 64 << 30}, hypervisor.MemoryDIMM)
	vm.spec.MemoryMiB, vm.spec.MaxMemoryMiB = 64<<10, 70<<10
	b := vm.spec.MemoryMiB
	setMemory(t, vm.VM, b+128, b+2048)
	setMemory(t, vm.VM, b+2049, b+4096)
	setMemory(t, vm.VM, b+6<<10, b+6<<10)
}

func TestSetMemoryDIMMRefused(t *testing.T) {
	b := &board{refuse: "device_add"}
	vm := scriptBoard(t, b, hypervisor.MemoryDIMM)
	if now, err := vm.SetMemoryMiB(testContext(t), 640, 640); now != 512 || err == nil || !strings.Contains(err.Error(), outOfLuck) {
		t.Errorf("refused: %d, %v", now, err)
	}
	if last := vm.changes()[2]; last != `object-del {"id":"pod.dimm.0.memory"}` {
		t.Errorf("then: %s", last)
	}
	b.change(func() { b.dimms = []string{"a", "b", "c"} })
	if _, err := vm.SetMemoryMiB(testContext(t), 640, 640); !errdefs.IsResourceExhausted(err) {
		t.Errorf("without a slot: %v", err)
	}
}

func TestSetMemoryVirtio(t *testing.T) {
	b := &board{}
	vm := scriptBoard(t, b, hypervisor.MemoryVirtio)
	setMemory(t, vm.VM, 513, 514)
	setMemory(t, vm.VM, 2000, 1100)
	setMemory(t, vm.VM, 0, 512)
	resize := func(mib uint64) string {
		return fmt.Sprintf(`qom-set {"path":"/machine/peripheral/pod.memory","property":"requested-size","value":%d}`, mib<<20)
	}
	want := []string{
		`object-add {"id":"pod.memory.memory","qom-type":"memory-backend-memfd","share":true,"size":616562688}`,
		`device_add {"addr":"0x1","block-size":2097152,"bus":"pod","driver":"virtio-mem-pci","id":"pod.memory","memdev":"pod.memory.memory"}`,
		resize(2), resize(588), resize(0),
	}
	if diff := cmp.Diff(want, vm.changes()); diff != "" {
		t.Error(diff)
	}
}

// What the guest has not done in time is not requested any more: it would do it
// later, whatever the memory is used for by then.
func TestSetMemoryVirtioGivesUp(t *testing.T) {
	b := &board{}
	vm := scriptBoard(t, b, hypervisor.MemoryVirtio)
	setMemory(t, vm.VM, 768, 768)
	b.change(func() { b.lazy = true })
	for _, n := range []uint64{512, 1024} {
		ctx, cancel := context.WithTimeout(testContext(t), 10*sizeRepeat)
		if now, err := vm.SetMemoryMiB(ctx, n, n); now != 768 || err != nil {
			t.Errorf("SetMemoryMiB(%d): %d, %v", n, now, err)
		}
		cancel()
		b.catchUp()
		if now, err := vm.countMemory(testContext(t)); now != 768 || err != nil {
			t.Errorf("some time after SetMemoryMiB(%d): %d MiB, %v, want 768", n, now, err)
		}
	}
}

// A guest that changes the size while the request for it is withdrawn keeps what it
// has then.
func TestSizeChangesWhileItIsKept(t *testing.T) {
	b := &board{lazy: true}
	more := []uint64{2 << 20, 2 << 20, 0}
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		if r.Execute == "qom-get" && len(more) > 0 {
			b.change(func() { b.plugged += more[0] })
			more = more[1:]
		}
		return b.answer(s, r)
	})
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := vm.keepSize(ctx, 512<<20); err != nil {
		t.Error(err)
	}
	b.change(func() {
		if b.requested != 4<<20 || b.plugged != 4<<20 {
			t.Errorf("%d bytes are requested, there are %d", b.requested, b.plugged)
		}
	})
}

func TestResizeChecks(t *testing.T) {
	vm := script(t, refuseNothing)
	vm.spec = hypervisor.Spec{VCPUs: 1, MaxVCPUs: 4, MemoryMiB: 512}
	if now, err := vm.SetMemoryMiB(testContext(t), 1024, 1024); now != 512 || !errdefs.IsNotImplemented(err) {
		t.Errorf("without room for memory: %d, %v", now, err)
	}
	if _, err := vm.SetVCPUs(testContext(t), 2); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("before the machine runs: %v", err)
	}
}
