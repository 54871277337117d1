package cri

import (
	"context"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// targetPID is CRI's NamespaceMode for another container's processes.
const targetPID = 3

// A container that targets another one, as with kubectl debug --target, sees
// that one's processes and no others of the pod.
func TestTargetPIDs(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "target")
		own := map[string]any{"linux": withPID(containerPID)}
		target, apart := p.start(ctx, t, forever, own), p.start(ctx, t, forever, own)
		debug := p.start(ctx, t, forever, map[string]any{"linux": map[string]any{"security_context": map[string]any{
			"namespace_options": map[string]any{"pid": targetPID, "target_id": target},
		}}})
		checkPIDs(ctx, t, p, map[string]int{debug: 2, target: 2, apart: 1})
	})
}
