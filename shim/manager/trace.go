package manager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/shim/tracing"
	"github.com/katabox/katabox/virtcontainers"
)

// toolName is the operator's command, which is installed beside the shim.
const toolName = "kata-runtime"

// newTracer makes the tracer of a shim. It is used only if the configuration
// enables it.
func newTracer(ctx context.Context, p *Params) *tracing.Tracer {
	return tracing.New(context.WithoutCancel(ctx), p.ID, func(ctx context.Context, b *tracing.Batch, last bool) error {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find %s beside the shim: %w", toolName, err)
		}
		return tracing.ByProgram(filepath.Join(filepath.Dir(self), toolName))(ctx, b, last)
	})
}

// configure returns the function that tells the tracer of a sandbox's
// configuration.
func configure(t *tracing.Tracer) func(virtcontainers.Options) {
	return func(o virtcontainers.Options) {
		resource := map[string]string{"katabox.sandbox.id": o.ID}
		if name, err := os.Hostname(); err == nil {
			resource["host.name"] = name
		}
		for key, value := range map[string]string{
			"k8s.pod.name": o.Pod.Name, "k8s.namespace.name": o.Pod.Namespace, "k8s.pod.uid": o.Pod.UID,
		} {
			if value != "" {
				resource[key] = value
			}
		}
		t.Configure(o.Config, resource)
	}
}
