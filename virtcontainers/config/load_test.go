package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// testHost is a host of four CPUs whose files are in a new directory: etc.toml
// and usr.toml are the default places, env is what envFile says.
func testHost(t *testing.T, env string, files map[string]string) (h host, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	getenv := func(name string) string {
		if name == envFile && env != "" {
			return filepath.Join(dir, env)
		}
		return ""
	}
	return host{getenv, []string{filepath.Join(dir, "etc.toml"), filepath.Join(dir, "usr.toml")}, 4, filepath.Join(dir, "guest")}, dir
}

func timeoutDoc(seconds int) string {
	return fmt.Sprintf("agent.kata.dial_timeout = %d", seconds)
}

// The guest of a whole version belongs to its shim, whatever else the node's file sets.
func TestGuestBesideTheProgram(t *testing.T) {
	kernel, initrd := "/usr/share/kata-containers/vmlinux", "/usr/share/kata-containers/initrd.img"
	for name, test := range map[string]struct {
		doc    string
		beside []string
		kernel string
		initrd string
	}{
		"only the path of QEMU": {"hypervisor.qemu.path = '/usr/libexec/qemu-kvm'", []string{"vmlinux", "initrd.img"}, "guest/vmlinux", "guest/initrd.img"},
		"the kernel is empty":   {"hypervisor.qemu.kernel = ''", []string{"vmlinux"}, "guest/vmlinux", initrd},
		"the kernel is named":   {"hypervisor.qemu.kernel = '/k'", []string{"vmlinux", "initrd.img"}, "/k", "guest/initrd.img"},
		"nothing beside":        {"", nil, kernel, initrd},
		"a directory":           {"", []string{"vmlinux/x"}, kernel, initrd},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"etc.toml": test.doc}
			for _, name := range test.beside {
				files["guest/"+name] = ""
			}
			h, dir := testHost(t, "", files)
			c, err := h.load("")
			if err != nil {
				t.Fatal(err)
			}
			for got, want := range map[string]string{c.Hypervisor.Kernel: test.kernel, c.Hypervisor.Initrd: test.initrd} {
				if !filepath.IsAbs(want) {
					want = filepath.Join(dir, want)
				}
				if got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
		})
	}
}

func TestLoadOrder(t *testing.T) {
	all := map[string]string{
		"explicit.toml": timeoutDoc(1), "env.toml": timeoutDoc(2), "etc.toml": timeoutDoc(3), "usr.toml": timeoutDoc(4),
	}
	tests := []struct {
		explicit, env string
		remove        []string
		source        string
		timeout       int
	}{
		{"explicit.toml", "env.toml", nil, "explicit.toml", 1},
		{"", "env.toml", nil, "env.toml", 2},
		{"", "", nil, "etc.toml", 3},
		{"", "", []string{"etc.toml"}, "usr.toml", 4},
		{"", "", []string{"etc.toml", "usr.toml"}, "", 45},
	}
	for _, test := range tests {
		h, dir := testHost(t, test.env, all)
		for _, name := range test.remove {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		explicit := test.explicit
		if explicit != "" {
			explicit = filepath.Join(dir, explicit)
		}
		config, err := h.load(explicit)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Agent.DialTimeout; got != time.Duration(test.timeout)*time.Second {
			t.Errorf("%+v: dial timeout %v", test, got)
		}
		var source []string
		if test.source != "" {
			source = []string{filepath.Join(dir, test.source)}
		}
		if diff := cmp.Diff(source, config.Source); diff != "" {
			t.Errorf("%+v: source (-want +got):\n%s", test, diff)
		}
		if note := strings.Contains(strings.Join(config.Warnings, "\n"), "using built-in defaults"); note != (source == nil) {
			t.Errorf("%+v: warnings %q", test, config.Warnings)
		}
	}
}

// A directory that holds a whole version has its own configuration; a program
// in the distribution's directory has only the distribution's.
func TestUsualFiles(t *testing.T) {
	const etc, usr = "/etc/kata-containers/configuration.toml", "/usr/share/defaults/kata-containers/configuration.toml"
	tests := []struct {
		program string
		err     error
		want    []string
	}{
		{"/opt/kata/versions/1/bin/shim", nil, []string{etc, "/opt/kata/versions/1/share/defaults/kata-containers/configuration.toml", usr}},
		{"/usr/bin/shim", nil, []string{etc, usr}},
		{"", os.ErrNotExist, []string{etc, usr}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, usualFiles(test.program, test.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.program, diff)
		}
	}
}

func TestLoadDoesNotFallBackFromANamedFile(t *testing.T) {
	h, dir := testHost(t, "", map[string]string{"etc.toml": ""})
	missing := filepath.Join(dir, "missing.toml")
	if _, err := h.load(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("explicit file missing: %v", err)
	}
	h, _ = testHost(t, "missing.toml", map[string]string{"etc.toml": ""})
	if _, err := h.load(""); err == nil {
		t.Errorf("%s names a missing file, yet it loads", envFile)
	}
}

// A default place whose file is a link to nothing is not passed over: the next one's
// values are not what the operator wants.
func TestLoadRefusesALinkToNothing(t *testing.T) {
	h, dir := testHost(t, "", map[string]string{"usr.toml": ""})
	link := filepath.Join(dir, "etc.toml")
	if err := os.Symlink("missing.toml", link); err != nil {
		t.Fatal(err)
	}
	if _, err := h.load(""); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("%v, want an error that names %s", err, link)
	}
}

// Drop-ins that do not count, because the file that is read is elsewhere, are named.
func TestLoadSaysWhichDropInsItDoesNotRead(t *testing.T) {
	const etc, usr, env = "etc/c.toml", "usr/c.toml", "env/c.toml"
	tests := map[string]struct {
		files map[string]string
		env   string
		link  string // etc/c.toml's target
		want  string
	}{
		"beside a place without a file": {map[string]string{"etc/config.d/1.toml": timeoutDoc(1), usr: timeoutDoc(9)}, "", "", "etc/config.d"},
		"without any file":              {map[string]string{"etc/config.d/1.toml": timeoutDoc(1)}, "", "", "etc/config.d"},
		"beside a link":                 {map[string]string{"etc/config.d/1.toml": timeoutDoc(1), usr: timeoutDoc(9)}, "", "../usr/c.toml", "etc/config.d"},
		"beside a later place":          {map[string]string{etc: timeoutDoc(9), "usr/config.d/1.toml": timeoutDoc(1)}, "", "", ""},
		"beside another file":           {map[string]string{env: timeoutDoc(9), etc: "", "etc/config.d/1.toml": timeoutDoc(1)}, env, "", ""},
		"nothing to read":               {map[string]string{"etc/config.d/1.toml~": timeoutDoc(1), usr: timeoutDoc(9)}, "", "", ""},
		"read":                          {map[string]string{etc: timeoutDoc(1), "etc/config.d/1.toml": timeoutDoc(9)}, "", "", ""},
	}
	for name, test := range tests {
		h, dir := testHost(t, test.env, test.files)
		h.files = []string{filepath.Join(dir, etc), filepath.Join(dir, usr)}
		if test.link != "" {
			if err := os.Symlink(test.link, filepath.Join(dir, etc)); err != nil {
				t.Fatal(err)
			}
		}
		config, err := h.load("")
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(config.Warnings, "\n")
		if strings.Contains(said, "config.d") != (test.want != "") || !strings.Contains(said, test.want) {
			t.Errorf("%s: warnings %q, want one about %q", name, config.Warnings, test.want)
		}
	}
}

func TestLoadDropIns(t *testing.T) {
	h, dir := testHost(t, "", map[string]string{
		"real/main.toml":           "[hypervisor.qemu]\ndefault_memory = 300\nkernel_params = 'main'",
		"real/config.d/20-b.toml":  "[hypervisor.qemu]\ndefault_memory = 400\nx = 1",
		"real/config.d/10-a.toml":  "[hypervisor.qemu]\ndefault_memory = 500\nkernel_params = 'drop-in'\nimage = '/a'",
		"real/config.d/README":     "not TOML",
		"real/config.d/d.toml/e":   "a directory",
		"real/config.d/z.toml.bak": "[[[",
		"real/config.d/.z.toml":    "[[[",
	})
	// Emacs locks the file that it edits by such a link.
	if err := os.Symlink("user@host.1:2", filepath.Join(dir, "real/config.d/.#20-b.toml")); err != nil {
		t.Fatal(err)
	}
	// The drop-ins beside the target apply, not those beside the link.
	if err := os.Symlink("real/main.toml", filepath.Join(dir, "etc.toml")); err != nil {
		t.Fatal(err)
	}
	config, err := h.load("")
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Hypervisor.MemoryMiB, want.Hypervisor.KernelParams = 400, "drop-in"
	want.Source = []string{dir + "/real/main.toml", dir + "/real/config.d/10-a.toml", dir + "/real/config.d/20-b.toml"}
	want.Warnings = []string{
		want.Source[2] + ":3: unknown key hypervisor.qemu.x is ignored",
		want.Source[1] + ":4: hypervisor.qemu.image is not implemented yet and is ignored: " +
			"the guest boots from the initrd /usr/share/kata-containers/initrd.img",
	}
	if diff := diffConfig(&want, config); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
}

func TestLoadReportsAllFilesAtOnce(t *testing.T) {
	h, dir := testHost(t, "", map[string]string{
		"etc.toml":        "\n[hypervisor.qemu]\ndefault_memory = 1",
		"config.d/a.toml": "= 1",
		"config.d/b.toml": "runtime.enable_debug = 1",
		"config.d/c.toml": strings.Repeat("#", maxFileSize+1),
	})
	if err := unix.Mkfifo(filepath.Join(dir, "config.d/d.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := h.load("")
	if err == nil {
		t.Fatalf("loaded: %+v", config)
	}
	want := strings.Join([]string{
		"DIR/config.d/a.toml:1:1: toml: invalid character at start of key: U+003D '='",
		"read configuration: DIR/config.d/c.toml is larger than 1048576 bytes",
		"read configuration: DIR/config.d/d.toml is not a regular file",
		"DIR/etc.toml:3: hypervisor.qemu.default_memory = 1: want an integer number of MiB, at least 256 and at most 16777216",
		"DIR/config.d/b.toml:1: runtime.enable_debug = 1: want true or false",
	}, "\n")
	if diff := cmp.Diff(want, strings.ReplaceAll(err.Error(), dir, "DIR")); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	h, dir := testHost(t, "", map[string]string{"etc.toml": "", "config.d": "a file"})
	if _, err := h.load(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := h.load(""); err == nil || !strings.Contains(err.Error(), "list configuration drop-ins") {
		t.Errorf("config.d is a file: %v", err)
	}
	h.files = []string{filepath.Join(dir, "etc.toml/x")}
	if _, err := h.load(""); err == nil || strings.Contains(err.Error(), fs.ErrNotExist.Error()) {
		t.Errorf("a file as directory: %v", err)
	}
}

// TestLoadKatasFile loads a file as Kata Containers' users have it: it may
// cause warnings, but no error.
func TestLoadKatasFile(t *testing.T) {
	h, _ := testHost(t, "", nil)
	config, err := h.load("testdata/kata.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Hypervisor.Path = "/opt/kata/bin/qemu-system-x86_64"
	want.Hypervisor.Kernel = "/opt/kata/share/kata-containers/vmlinux.container"
	want.Hypervisor.KernelParams = "agent.log=info"
	want.Hypervisor.CPUFeatures = "pmu=off"
	want.Hypervisor.VCPUs = 2
	want.Hypervisor.MemoryMiB = 4096
	want.Hypervisor.VirtioFS = VirtioFS{
		Daemon: "/opt/kata/libexec/virtiofsd", Cache: CacheMetadata, QueueSize: 512,
		ExtraArgs: []string{"--thread-pool-size=1", "--announce-submounts"},
	}
	want.Agent.Debug = true
	want.Agent.KernelModules = []string{"e1000e InterruptThrottleRate=3000,3000", "i915"}
	want.Runtime.CreateContainerTimeout = 90 * time.Second
	want.Annotations = Allowed{
		Enabled:             []string{"enable_iommu", "kernel_params"},
		HypervisorPaths:     []string{"/opt/kata/bin/qemu-system-x86_64"},
		VirtioFSDaemonPaths: []string{"/opt/kata/libexec/virtiofsd"},
		KernelPaths:         want.Annotations.KernelPaths,
		InitrdPaths:         want.Annotations.InitrdPaths,
		FirmwarePaths:       want.Annotations.FirmwarePaths,
		EntropySources:      []string{"/dev/urandom", "/dev/random", ""},
		MemBackends:         []string{""},
	}
	want.Source = []string{"testdata/kata.toml"}
	want.Warnings = config.Warnings
	if diff := diffConfig(&want, config); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
	golden(t, "testdata/kata.warnings", strings.Join(config.Warnings, "\n")+"\n")
}
