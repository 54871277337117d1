package k8s

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/katabox/katabox/tests/k8s/node"
)

// buildOf makes the directory of a build to install, named by word: a second
// one is another version.
func buildOf(word string) (string, error) {
	dir := filepath.Join(node.Dir, "build-"+word)
	for name, from := range map[string]string{
		"bin/containerd-shim-kata-v2":                       "bin/containerd-shim-kata-v2",
		"bin/kata-runtime":                                  "bin/kata-runtime",
		"share/kata-containers/vmlinux":                     "build/guest/vmlinux",
		"share/kata-containers/initrd.img":                  "build/guest/initrd.img",
		"share/defaults/kata-containers/configuration.toml": "configuration.toml",
	} {
		data, err := os.ReadFile(filepath.Join(bed.layout.Root, from))
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if filepath.Ext(name) == ".toml" {
			data = fmt.Appendf(data, "\n# build %s\n", word)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// install installs a build on the node.
func install(ctx context.Context, word string) error {
	dir, err := buildOf(word)
	if err != nil {
		return fmt.Errorf("make build %s: %w", word, err)
	}
	_, err = installer(ctx, "install", "--from", dir)
	return err
}

// installer runs a command of the installer on the node, and returns its output.
func installer(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--host-root", "/")
	out, err := exec.CommandContext(ctx, filepath.Join(bed.layout.Bin(), "kata-runtime"), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kata-runtime %v: %w: %s", args, err, out)
	}
	return string(out), nil
}
