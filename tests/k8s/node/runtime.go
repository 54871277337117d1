package node

import (
	"context"
	"fmt"
)

// defaultRuntimePath is one of the files that containerd's configuration imports.
const defaultRuntimePath = "/etc/containerd/conf.d/90-default-runtime.toml"

// SetDefaultRuntime makes a runtime handler that of pods that name no RuntimeClass,
// and restarts containerd.
func (n *Node) SetDefaultRuntime(ctx context.Context, name string) error {
	text := fmt.Sprintf("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = %q\n", name)
	if err := writeFiles(map[string]string{defaultRuntimePath: text}); err != nil {
		return fmt.Errorf("set the default runtime: %w", err)
	}
	return n.Restart(ctx, Containerd)
}

// Kubeconfig is the path of an administrator's configuration.
func (n *Node) Kubeconfig() string { return kubeconfigPath }
