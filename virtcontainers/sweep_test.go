package virtcontainers_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers"
)

// Only a pod whose shim is dead is swept, and once.
func TestSweep(t *testing.T) {
	host := newHost(t)
	processes := deadPod(t, host)
	swept, err := virtcontainers.Sweep(host.Platform(), time.Second)
	if err != nil || len(swept) != 0 || !processes[1].Alive() {
		t.Fatalf("while its shim lives: swept %v, error %v", swept, err)
	}
	if err := processes[0].Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{sandboxID}, nil} {
		swept, err := virtcontainers.Sweep(host.Platform(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, swept); diff != "" {
			t.Error(diff)
		}
		checkNothingLeft(t, host)
	}
	for i, p := range processes {
		if p.Alive() {
			t.Errorf("process %d of the pod is alive", i)
		}
	}
}
