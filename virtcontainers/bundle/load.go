package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// SpecFile is the name of the OCI runtime configuration in a bundle.
const SpecFile = "config.json"

// maxSpec bounds config.json, in bytes: real ones are below 100 KiB.
const maxSpec = 16 << 20

// Bundle is an OCI bundle: a directory and the spec read from it.
type Bundle struct {
	// Dir is absolute.
	Dir string
	// Spec has absolute sources of bind mounts, and absolute, clean paths of devices.
	Spec *specs.Spec
}

// Load reads and checks the bundle in dir.
func Load(dir string) (*Bundle, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find bundle: %w", err)
	}
	path := filepath.Join(dir, SpecFile)
	data, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load bundle: %w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("load bundle: %w", err)
	}
	spec, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("load bundle: %s: %w", path, err)
	}
	b := &Bundle{Dir: dir, Spec: spec}
	b.resolveSources()
	b.cleanDevices()
	return b, nil
}

// resolveSources makes the sources of bind mounts absolute: they are relative to
// the bundle, which is runc's working directory (libcontainer/specconv).
func (b *Bundle) resolveSources() {
	for i := range b.Spec.Mounts {
		m := &b.Spec.Mounts[i]
		bind := m.Type == "bind" || m.Type == "uds" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		if bind && m.Source != "" && !filepath.IsAbs(m.Source) {
			m.Source = filepath.Join(b.Dir, m.Source)
		}
	}
}

// cleanDevices makes the paths of devices absolute and clean: runc joins them to the
// container's root, Kubernetes checks none, and they are compared.
func (b *Bundle) cleanDevices() {
	for i := range b.Spec.Linux.Devices {
		d := &b.Spec.Linux.Devices[i]
		d.Path = filepath.Join("/", d.Path)
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSpec {
		return nil, fmt.Errorf("%s is longer than %d bytes: %w", path, maxSpec, errdefs.ErrInvalidArgument)
	}
	return data, nil
}

// Parse decodes a spec and checks that it has what every container needs.
func Parse(data []byte) (*specs.Spec, error) {
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("not an OCI runtime spec: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	switch {
	case spec.Root == nil || spec.Root.Path == "":
		return nil, missing("root.path", "the container's root file system")
	case spec.Process == nil:
		return nil, missing("process", "the container's first process")
	case len(spec.Process.Args) == 0:
		return nil, missing("process.args", "at least one argument, the program to run")
	case spec.Linux == nil:
		return nil, missing("linux", "a Linux container")
	}
	return &spec, nil
}

func missing(key, want string) error {
	return fmt.Errorf("%s is missing or empty, want %s: %w", key, want, errdefs.ErrInvalidArgument)
}

// RootfsPath is where the container's root file system is on the host:
// root.path, relative to the bundle unless absolute.
func (b *Bundle) RootfsPath() string {
	if filepath.IsAbs(b.Spec.Root.Path) {
		return filepath.Clean(b.Spec.Root.Path)
	}
	return filepath.Join(b.Dir, b.Spec.Root.Path)
}
