package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Where Debian 12 installs QEMU, and the daemon that can serve the share
// instead of the shim. Debian 13 has no virtiofsd there, or a link to another.
const (
	DefaultQEMU      = "/usr/bin/qemu-system-x86_64"
	DefaultVirtiofsd = "/usr/lib/qemu/virtiofsd"
)

// EnvVirtiofsd says what serves the share if a test does not: a daemon's path,
// or OwnVirtiofs, which is the default.
const EnvVirtiofsd = "KATABOX_TEST_VIRTIOFSD"

// OwnVirtiofs is a KataConfig.Virtiofsd: the shim serves the share itself.
const OwnVirtiofs = "own"

// EnvTemplate names the variable that, if not empty, has pods start from templates unless a test says
// otherwise. A daemon makes its template when it starts, unless another one of the process has made it.
const EnvTemplate = "KATABOX_TEST_TEMPLATE"

// EnvPool names the variable that has each daemon keep that many spare machines
// from the daemon's template, unless a test says otherwise. It implies EnvTemplate.
const EnvPool = "KATABOX_TEST_POOL"

// KataConfig is the part of the runtime's configuration that the suites vary.
// The zero value is a small VM with what the checkout built.
type KataConfig struct {
	// QEMU, Virtiofsd, Kernel and Initrd are paths; empty for the default.
	QEMU, Virtiofsd, Kernel, Initrd string
	// MemoryMiB is the VM's memory; 0 for the default.
	MemoryMiB int
	// Extra is appended to the file: whole TOML tables.
	Extra string
	// Broken says that no pod can start with it, so no template is made.
	Broken bool
}

// defaultMemoryMiB is small, so that ten VMs fit on a small machine.
const defaultMemoryMiB = 256

func (k KataConfig) withDefaults(l Layout) KataConfig {
	setDefault(&k.QEMU, DefaultQEMU)
	setDefault(&k.Virtiofsd, os.Getenv(EnvVirtiofsd))
	setDefault(&k.Virtiofsd, OwnVirtiofs)
	setDefault(&k.Kernel, l.Kernel())
	setDefault(&k.Initrd, l.Initrd())
	if k.MemoryMiB == 0 {
		k.MemoryMiB = defaultMemoryMiB
	}
	return k
}

// ExternalVirtiofsd returns the daemon that serves the share if a test does not
// say otherwise; "" if the shim does.
func ExternalVirtiofsd() string {
	if daemon := os.Getenv(EnvVirtiofsd); daemon != OwnVirtiofs {
		return daemon
	}
	return ""
}

// ExternalVirtiofsd returns the daemon that serves the share of d's pods; "" if
// the shim does.
func (d *Daemon) ExternalVirtiofsd() string {
	if daemon := d.options.Kata.withDefaults(d.options.Layout).Virtiofsd; daemon != OwnVirtiofs {
		return daemon
	}
	return ""
}

// HasVirtiofsd reports whether DefaultVirtiofsd is installed and is QEMU's.
func HasVirtiofsd() bool {
	info, err := os.Lstat(DefaultVirtiofsd)
	return err == nil && info.Mode().IsRegular()
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// Write writes a configuration file at path, for what the checkout has built.
func (k KataConfig) Write(l Layout, path string) error {
	if err := os.WriteFile(path, []byte(k.withDefaults(l).text()), 0o600); err != nil {
		return fmt.Errorf("write runtime configuration: %w", err)
	}
	if dir, use := k.templates(path); use {
		if err := writeTemplates(path, dir); err != nil {
			return err
		}
	}
	if strings.Contains(k.Extra, "timeout") {
		return nil // it is about them
	}
	return writePatience(path)
}

// UseTemplates reports whether the environment has pods start from templates.
func UseTemplates() bool { return os.Getenv(EnvTemplate) != "" || os.Getenv(EnvPool) != "" }

// templates returns the template directory of the daemon whose configuration
// file is at path, and whether its pods use it because of the environment.
func (k KataConfig) templates(path string) (dir string, use bool) {
	return filepath.Join(filepath.Dir(path), "templates"), UseTemplates() && !k.Broken && !strings.Contains(k.Extra, "[factory]")
}

// writeTemplates makes the configuration file at path use the templates in dir.
func writeTemplates(path, dir string) error {
	text := fmt.Sprintf("[factory]\nenable_template = true\ntemplate_path = %q\n", dir)
	if spares := os.Getenv(EnvPool); spares != "" {
		text += "vm_cache_number = " + spares + "\n"
	}
	dropIns := filepath.Join(filepath.Dir(path), "config.d")
	if err := os.MkdirAll(dropIns, 0o755); err != nil {
		return fmt.Errorf("write runtime configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dropIns, "20-template.toml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write runtime configuration: %w", err)
	}
	return nil
}

// text returns the configuration file.
func (k KataConfig) text() string {
	var b strings.Builder
	if k.Virtiofsd == OwnVirtiofs {
		k.Virtiofsd = ""
	}
	fmt.Fprintln(&b, "[hypervisor.qemu]")
	fmt.Fprintf(&b, "path = %q\nkernel = %q\ninitrd = %q\n", k.QEMU, k.Kernel, k.Initrd)
	fmt.Fprintf(&b, "virtio_fs_daemon = %q\nshared_fs = \"virtio-fs\"\n", k.Virtiofsd)
	fmt.Fprintf(&b, "default_vcpus = 1\ndefault_memory = %d\n", k.MemoryMiB)
	b.WriteString(k.Extra)
	return b.String()
}

// MakerPatience bounds the making of a template on a busy machine.
const MakerPatience = 4 * time.Minute

// Patience has longer limits for tests. With the defaults, a busy test machine
// would cause timeouts.
const Patience = `
[agent.kata]
dial_timeout = 240
health_check_timeout = 120
[runtime]
create_container_timeout = 300
`

// writePatience adds Patience to the configuration file at path, as a separate
// file.
func writePatience(path string) error {
	dir := filepath.Join(filepath.Dir(path), "config.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write runtime configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "10-patience.toml"), []byte(Patience), 0o600); err != nil {
		return fmt.Errorf("write runtime configuration: %w", err)
	}
	return nil
}
