package management

import (
	"os"
	"runtime"

	"github.com/katabox/katabox/virtcontainers/procstat"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// writeShim writes the resource use of this process.
func writeShim(t *prom.Text) {
	procstat.WriteProcess(t, "kata_shim", "the shim", os.Getpid())
	t.Family("kata_shim_go_info", prom.Gauge, "The shim's release of Go.")
	t.Sample(1, "version", runtime.Version())
	t.Single("kata_shim_go_goroutines", prom.Gauge, "Goroutines of the shim.", float64(runtime.NumGoroutine()))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for _, g := range []struct {
		name, help string
		value      uint64
	}{
		{"alloc_bytes", "Bytes of the heap's objects.", m.HeapAlloc},
		{"heap_objects", "Objects in the heap.", m.HeapObjects},
		{"heap_inuse_bytes", "Bytes of the heap that are used.", m.HeapInuse},
		{"heap_idle_bytes", "Bytes of the heap that are free.", m.HeapIdle},
		{"heap_released_bytes", "Bytes of the heap that were returned to the system.", m.HeapReleased},
		{"stack_inuse_bytes", "Bytes of the stacks.", m.StackInuse},
		{"sys_bytes", "Bytes from the system.", m.Sys},
		{"next_gc_bytes", "The heap's size at the next collection.", m.NextGC},
	} {
		t.Single("kata_shim_go_memstats_"+g.name, prom.Gauge, g.help, float64(g.value))
	}
	t.Single("kata_shim_go_memstats_mallocs_total", prom.Counter, "Objects that were allocated.", float64(m.Mallocs))
	t.Single("kata_shim_go_memstats_frees_total", prom.Counter, "Objects that were freed.", float64(m.Frees))
}
