package cri

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// A handler's ConfigPath names the configuration of its pods.
func TestHandlersHaveTheirConfiguration(t *testing.T) {
	if !bed.runtime.VM {
		t.Skipf("%s has no configuration file", bed.runtime.Name)
	}
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		memory := map[string]int{}
		for _, handler := range []string{env.KataHandler, env.ConfiguredHandler} {
			p := runpWith(ctx, t, e, handler, handler, "")
			id := p.start(ctx, t, forever, nil)
			fields := strings.Fields(p.exec(ctx, t, id, "grep", "MemTotal", "/proc/meminfo"))
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			memory[handler] = kib / 1024
		}
		// The guest's kernel reserves some memory, the same in both.
		small, large := memory[env.KataHandler], memory[env.ConfiguredHandler]
		if large > env.ConfiguredMemoryMiB || large < env.ConfiguredMemoryMiB*3/4 || small >= env.ConfiguredMemoryMiB*3/4 {
			t.Errorf("memory of the guests: %v MiB, want something below %d with %s only", memory, env.ConfiguredMemoryMiB, env.ConfiguredHandler)
		}
	})
}
