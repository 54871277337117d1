package qemu

import (
	"encoding/json"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
	"github.com/katabox/katabox/internal/ctxmutex"
)

// FuzzReplies lets a compromised QEMU answer every command with the same JSON: each
// question and each change ends, and nothing panics.
func FuzzReplies(f *testing.F) {
	for _, reply := range []string{
		`{}`, `[]`, `null`, `7`, `[{"cpu-index": 1, "thread-id": 7}, {"cpu-index": -1}]`,
		`{"base-memory": 18446744073709551615, "plugged-memory": 1048576}`,
		`[{"data": {"id": "pod.dimm.0", "size": 134217728}}, {"data": {"id": "pod.dimm.-1"}}]`,
		`[{"type": "cpu", "props": {"socket-id": 1}}, {"props": null, "qom-path": "/machine/peripheral/pod.cpu.3"}, null]`,
	} {
		f.Add([]byte(reply))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		if !json.Valid(reply) || len(reply) > 1<<16 {
			return
		}
		conn, server := qmptest.Pair(t)
		served := make(chan struct{})
		go func() {
			defer close(served)
			server.Handshake()
			server.Serve(func(qmptest.Request) any { return json.RawMessage(reply) })
		}()
		mon := qmp.New(conn)
		if err := mon.Connect(); err != nil {
			t.Fatal(err)
		}
		askAll(t, &VM{
			mon: mon, sizing: ctxmutex.New(), devices: make(map[string]*device), done: make(chan struct{}),
			spec: hypervisor.Spec{ID: "lies", VCPUs: 1, MaxVCPUs: 4, MemoryMiB: 256, MaxMemoryMiB: 4096, MemorySlots: 4, Accel: hypervisor.AccelKVM},
		})
		_ = mon.Disconnect()
		<-served
	})
}

// askAll has the machine asked and changed.
func askAll(t *testing.T, vm *VM) {
	ctx := t.Context()
	_, _ = vm.Layout(ctx)
	_, _ = vm.countMemory(ctx)
	_ = vm.plugDIMM(ctx, 1024, 2048)
	if there, free, err := vm.cpus(ctx); err == nil {
		_ = vm.setVCPUs(ctx, len(there)+min(len(free), 1))
	}
	var cpus []vcpu
	if vm.mon.Execute(ctx, "query-cpus-fast", nil, &cpus) == nil {
		_, _ = inOrder(cpus, map[int]int{7: 70})
	}
	var info migrationInfo
	if vm.mon.Execute(ctx, "query-migrate", nil, &info) == nil && info.isOver(save) {
		_ = info.failure()
	}
}
