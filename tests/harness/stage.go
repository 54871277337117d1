package harness

import (
	"errors"
	"os"
	"path/filepath"
)

// Stage lays out the build in dir as "kata-runtime install --from" wants it. The
// mark is appended to the shim's program, which makes it another version.
func (l Layout) Stage(dir, mark string) error {
	for to, from := range map[string]string{
		"bin/containerd-shim-kata-v2": l.Shim(), "bin/kata-runtime": filepath.Join(l.Bin(), "kata-runtime"),
		"share/kata-containers/vmlinux": l.Kernel(), "share/kata-containers/initrd.img": l.Initrd(),
		"share/defaults/kata-containers/configuration.toml": filepath.Join(l.Root, "configuration.toml"),
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if from == l.Shim() {
			data = append(data, mark...)
		}
		path := filepath.Join(dir, to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o755)); err != nil {
			return err
		}
	}
	return nil
}
