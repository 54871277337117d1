package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/katabox/katabox/virtcontainers/config"
)

const envDoc = `[hypervisor.qemu]
default_memory = 512
default_vcpus = 1
default_maxvcpus = 1
kernel_params = "a=1"
virtio_fs_extra_args = ["-o", "x,y"]

[runtime]
vfio_mode = "vfio"
`

// envArgs is a configuration with a drop-in, and a pod's annotations.
func envArgs(t *testing.T) (dir string, args []string) {
	t.Helper()
	file := configure(t, envDoc)
	dir = filepath.Dir(file)
	if err := os.Mkdir(filepath.Join(dir, "config.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.d", "10.toml"), []byte("\n[agent.kata]\ndial_timeout = 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"env", "--config", file,
		"--annotations", "io.katacontainers.config.hypervisor.kernel_params=b=2,3",
		"--annotations", "com.github.containers.virtcontainers.sandbox_mem=1G"}
}

func TestEnv(t *testing.T) {
	dir, args := envArgs(t)
	out, errs, code := call(t, newFakeHost(t).host, args...)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %q", code, errs)
	}
	golden(t, "env.toml", strings.ReplaceAll(withoutDefaults(out), dir, "DIR"))

	var doc struct {
		Config map[string]any `toml:"config"`
	}
	if err := toml.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("not TOML: %v", err)
	}
	// The printed configuration is a valid configuration file.
	again, err := toml.Marshal(doc.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(configure(t, string(again)))
	if err != nil || len(cfg.Warnings) > 0 || cfg.Hypervisor.MemoryMiB != 1024 || cfg.Hypervisor.KernelParams != "a=1 b=2,3" {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// withoutDefaults removes the keys that are not set, so that a new key does not
// change the expected output.
func withoutDefaults(out string) string {
	var kept strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(line, " # default\n") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func TestEnvJSON(t *testing.T) {
	dir, args := envArgs(t)
	out, errs, code := call(t, newFakeHost(t).host, append(args, "--json")...)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %q", code, errs)
	}
	var e env
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatal(err)
	}
	from := make(map[string]string)
	for _, v := range e.Config {
		from[v.Key] = v.From
	}
	for key, want := range map[string]string{
		"hypervisor.qemu.default_memory": "annotation com.github.containers.virtcontainers.sandbox_mem",
		"hypervisor.qemu.kernel_params":  "annotation io.katacontainers.config.hypervisor.kernel_params",
		"agent.kata.dial_timeout":        dir + "/config.d/10.toml:3",
		"hypervisor.qemu.path":           "default",
	} {
		if from[key] != want {
			t.Errorf("%s comes from %q, want %q", key, from[key], want)
		}
	}
	if e.Versions.QEMU != "7.2.22 (Debian 1:7.2)" || e.Versions.GuestKernel != "6.1.0-56" || len(e.Paths.Config) != 2 || len(e.Warnings) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestEnvOfABareHost(t *testing.T) {
	f := bad(t)
	f.programs = nil
	out, errs, code := call(t, f.host, "env", "--json", "--config", configure(t, ""))
	var e env
	if err := json.Unmarshal([]byte(out), &e); code != 0 || errs != "" || err != nil {
		t.Fatalf("exit %d, %q, %v", code, errs, err)
	}
	for _, v := range []string{e.Versions.QEMU, e.Versions.GuestKernel, e.Versions.GuestInitrd, e.Host.Vsock} {
		if !strings.HasPrefix(v, "unknown") {
			t.Errorf("%q is known", v)
		}
	}
}

// Errors go to stderr, say what to do next, and leave stdout empty.
func TestErrors(t *testing.T) {
	good := configure(t, "")
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"env", "--config", "/no/such/file"}, "find configuration /no/such/file"},
		{[]string{"env", "--config", configure(t, "a = ")}, "docs/configuration.md has all keys"},
		{[]string{"env", "--config", good, "--annotations", "x"}, `--annotations "x": want KEY=VALUE`},
		{[]string{"env", "--config", good, "--annotations", "=x"}, "want KEY=VALUE"},
		{[]string{"env", "--config", good, "--annotations", "io.katacontainers.config.hypervisor.kernel=/k"},
			`annotation io.katacontainers.config.hypervisor.kernel = "/k" is not enabled`},
		{[]string{"env", "x"}, `unexpected argument "x": see kata-runtime env --help`},
		{[]string{"check", "x"}, `unexpected argument "x": see kata-runtime check --help`},
		{[]string{"check", "--jsn"}, "see kata-runtime check --help"},
		{[]string{"chek"}, `unknown command "chek": see kata-runtime --help`},
	}
	for _, test := range tests {
		out, errs, code := call(t, newFakeHost(t).host, test.args...)
		if code != 1 || !strings.HasPrefix(errs, "kata-runtime: ") || !strings.Contains(errs, test.want) || out != "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q, want %q", test.args, code, out, errs, test.want)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	out, errs, code := call(t, newFakeHost(t).host, "version")
	if code != 0 || errs != "" || out != "kata-runtime "+version+"\n" {
		t.Errorf("version: exit %d, %q, %q", code, out, errs)
	}
	for _, args := range [][]string{nil, {"--help"}, {"check", "--help"}, {"env", "-h"}} {
		out, errs, code := call(t, newFakeHost(t).host, args...)
		if code != 0 || errs != "" || !strings.Contains(out, "kata-runtime") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
}
