package fakeguest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// WriteBundle makes an OCI bundle in dir: a root file system, as if an engine
// had mounted it, and a spec with those annotations.
func WriteBundle(dir string, annotations map[string]string) error {
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	data, err := json.Marshal(&specs.Spec{
		Version: specs.Version, Hostname: "host", Annotations: annotations,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: []string{"true"}, Cwd: "/"},
		Linux:   &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.MountNamespace}}},
	})
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	return nil
}
