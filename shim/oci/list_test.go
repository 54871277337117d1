package oci

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/shim/shimtest/files"
)

// Shims that are stopped are asked side by side, and not for long: the others are
// listed.
func TestListWithStoppedShims(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	r.answerTimeout = 2 * time.Second
	pids := make(map[string]int)
	for i := range 4 {
		id := fmt.Sprintf("c%d", i)
		pids[id] = create(t, r, id, CreateOptions{Bundle: newBundle(t, nil)})
		if id != "c3" {
			stopShim(t, files.ShimPID(t, r.dir(id)))
		}
	}
	begin := time.Now()
	list, err := r.List(t.Context())
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if err == nil || strings.Count(err.Error(), "container c") != 3 || len(list) != 1 || list[0].ID != "c3" {
		t.Errorf("listed %v, error %v", list, err)
	}
	for id, pid := range pids {
		if err := r.Delete(t.Context(), id, true); err != nil {
			t.Error(err)
		}
		reap(t, pid)
	}
}
