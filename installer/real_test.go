package installer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// realContainerds are the containerd programs of a checkout, by release.
var realContainerds = map[string]string{
	"1.x of the host": "/usr/bin/containerd",
	"2.4":             "../build/containerd-2.4.2/containerd",
}

// runReal runs the program with the node's configuration in the place of the
// host's, in a mount namespace.
func (h *host) runReal(program string) runner {
	return func(ctx context.Context, name string, args ...string) ([]byte, error) {
		if name != "containerd" {
			return h.run(ctx, name, args...)
		}
		script := `mount --make-rprivate / && mount --bind "$0" /etc/containerd && exec "$@"`
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, filepath.Join(h.root, "etc/containerd"), program}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, lastLine(stderr.String()))
		}
		return out, nil
	}
}

// Real containerds accept the handler, and keep the node's other settings for
// CRI: its pause image and its own handler.
func TestRealContainerd(t *testing.T) {
	main := map[string]string{
		"version 2":                  "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"the/pause:1\"\n[" + handlersV2 + ".own]\n  runtime_type = \"io.containerd.runc.v2\"\n",
		"version 3":                  "version = 3\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"the/pause:1\"\n[" + handlersV3 + ".own]\n  runtime_type = \"io.containerd.runc.v2\"\n",
		"version 3 with drop-ins":    "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"the/pause:1\"\n[" + handlersV3 + ".own]\n  runtime_type = \"io.containerd.runc.v2\"\n",
		"version 3 with other files": "version = 3\nimports = [\"/etc/containerd/other/*.toml\"]\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"the/pause:1\"\n[" + handlersV3 + ".own]\n  runtime_type = \"io.containerd.runc.v2\"\n",
	}
	for release, program := range realContainerds {
		for kind, text := range main {
			t.Run(release+", "+kind, func(t *testing.T) { tryReal(t, program, text) })
		}
	}
}

// realHost makes a node whose containerd is the program.
func realHost(t *testing.T, program, text string) (*host, Options) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a mount namespace")
	}
	if _, err := os.Stat("/etc/containerd"); err != nil {
		t.Skip("the host has no /etc/containerd to mount over")
	}
	program, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not there", program)
	}
	files := map[string]string{containerdConfig: text}
	if text == "" {
		files = map[string]string{"usr/bin/containerd": ""}
	}
	h := newHost(t, files)
	h.file("etc/containerd/keep", "", 0o600) // the directory is mounted over the host's
	o := h.options(newBuild(t, "shim"))
	o.run = h.runReal(program)
	return h, o
}

func tryReal(t *testing.T, program, text string) {
	_, o := realHost(t, program, text)
	version, err := o.run(t.Context(), "containerd", "--version")
	if err != nil {
		t.Fatal(err)
	}
	if !containerdTwo.Match(version) && strings.HasPrefix(text, "version = 3") {
		t.Skip("1.x does not read files of version 3")
	}
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	dump, err := o.run(t.Context(), "containerd", "--config", containerdConfig, "config", "dump")
	if err != nil {
		t.Fatal(err)
	}
	var all mainFile
	if err := toml.Unmarshal(dump, &all); err != nil {
		t.Fatal(err)
	}
	for _, handler := range []string{"kata", "own"} {
		if all.handler(handler) == nil {
			t.Errorf("the handler %s is not there:\n%s", handler, dump)
		}
	}
	if !bytes.Contains(dump, []byte("the/pause:1")) {
		t.Error("the pause image is lost")
	}
}

// What "containerd config migrate" makes of an installation is recognized.
func TestRealMigration(t *testing.T) {
	for kind, text := range map[string]string{"version 2": "version = 2\n", "version 3": "version = 3\n", "no file": ""} {
		t.Run(kind, func(t *testing.T) { tryMigration(t, realContainerds["2.4"], text) })
	}
}

func tryMigration(t *testing.T, program, text string) {
	h, o := realHost(t, program, text)
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	out, err := o.run(t.Context(), "containerd", "--config", containerdConfig, "config", "migrate")
	if err != nil {
		t.Fatal(err)
	}
	h.file(containerdConfig, string(out), 0o600)
	if _, err := Install(t.Context(), o); err != nil {
		t.Errorf("install: %v", err)
	}
	if got := h.read(containerdConfig); got != string(out) {
		t.Errorf("install changed the migrated file:\n%s", cmp.Diff(string(out), got))
	}
	if _, err := Uninstall(t.Context(), o); err == nil || !strings.Contains(err.Error(), "runtime_path = '"+ShimPath) {
		t.Errorf("uninstall: %v", err)
	}
}
