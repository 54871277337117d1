package installer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUninstallLeavesTheNodeAsItWas(t *testing.T) {
	eachNode(t, func(t *testing.T, files map[string]string) {
		h := newHost(t, files)
		before := h.tree()
		build := newBuild(t, "shim")
		engines := strings.Join(h.install(build).Engines, " ")
		after := h.tree()
		if got := h.restarts(); got != engines || got == "" {
			t.Errorf("restarted %q, told %q", got, engines)
		}
		h.install(build)
		if diff := cmp.Diff(after, h.tree()); diff != "" {
			t.Errorf("a second installation changed (-want +got):\n%s", diff)
		}
		if got := h.restarts(); got != "" {
			t.Errorf("restarted %q for nothing", got)
		}
		h.uninstall()
		if got := h.restarts(); got != engines {
			t.Errorf("uninstall restarted %q, want %q", got, engines)
		}
		if diff := cmp.Diff(before, h.tree()); diff != "" {
			t.Errorf("after uninstall (-want +got):\n%s", diff)
		}
		h.uninstall()
		if diff := cmp.Diff(before, h.tree()); diff != "" {
			t.Errorf("after a second uninstall (-want +got):\n%s", diff)
		}
	})
}

// A build's manual page and completion scripts come along, in whatever form it
// has them; a build without them is installed all the same.
func TestHelpIsInstalled(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	before, build := h.tree(), newBuild(t, "shim")
	page, script := "share/man/man8/kata-runtime.8.gz", "share/bash-completion/completions/kata-runtime"
	for _, name := range []string{page, script} {
		path := filepath.Join(build, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	h.install(build)
	for _, name := range []string{page, script} {
		text, err := os.ReadFile(filepath.Join(h.root, Home, "current", name))
		if err != nil || string(text) != name {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	h.uninstall()
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("after uninstall (-want +got):\n%s", diff)
	}
}

// "make install" with a PREFIX of /usr/local puts share beside it.
func TestInstallWithShareBesideThePrefix(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	build := newBuild(t, "shim")
	local := filepath.Join(build, "local")
	if err := errors.Join(os.Mkdir(local, 0o755), os.Rename(filepath.Join(build, "bin"), filepath.Join(local, "bin"))); err != nil {
		t.Fatal(err)
	}
	version := h.install(local).Version
	if got := h.read(versionsDir + "/" + version + "/" + buildConfig); got != "# config\n" {
		t.Errorf("the node's configuration is %q", got)
	}
}

// A kernel may be named by its path below /opt/kata before there is a version.
func TestKernelOfTheBuild(t *testing.T) {
	for _, dir := range []string{Home, current} {
		h := newHost(t, nodes["containerd 2.x"])
		h.file(ownConfig, qemu+" "+dir+"/share/kata-containers/vmlinux", 0o600)
		h.install(newBuild(t, "shim"))
	}
}

// A node without KVM gets the runtime, and is told what pods cost there.
func TestNodeWithoutKVMIsTold(t *testing.T) {
	for _, device := range []bool{false, true} {
		h := newHost(t, nodes["containerd 2.x"])
		if device {
			h.file("dev/kvm", "", 0o600)
		}
		var said strings.Builder
		o := h.options(newBuild(t, "shim"))
		o.Say = func(line string) { said.WriteString(line + "\n") }
		if _, err := Install(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(said.String(), "1664Mi"); told == device {
			t.Errorf("with the device %t: %s", device, said.String())
		}
	}
}

// Wherever the installer was killed, each command completes.
func TestDeathAnywhere(t *testing.T) {
	eachNode(t, func(t *testing.T, files map[string]string) {
		h := newHost(t, files)
		before := h.tree()
		build := newBuild(t, "shim")
		o := h.options(build)
		var changes *[]string
		o.cut, changes = cutAt(never)
		if _, err := Install(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		complete := h.tree()
		for at := range *changes {
			h.uninstall()
			h.cutInstall(build, at)
			h.uninstall()
			if diff := cmp.Diff(before, h.tree()); diff != "" {
				t.Fatalf("uninstall after a death before %q (-want +got):\n%s", (*changes)[at], diff)
			}
			h.cutInstall(build, at)
			h.install(build)
			if diff := cmp.Diff(complete, h.tree()); diff != "" {
				t.Fatalf("install after a death before %q (-want +got):\n%s", (*changes)[at], diff)
			}
		}
	})
}

// cutInstall kills an installation, and checks that it stops.
func (h *host) cutInstall(from string, at int) {
	h.t.Helper()
	o := h.options(from)
	o.cut, _ = cutAt(at)
	if _, err := Install(h.t.Context(), o); !errors.Is(err, errCut) {
		h.t.Fatalf("cut at %d: %v", at, err)
	}
}

func TestDeathOfUninstallAnywhere(t *testing.T) {
	eachNode(t, func(t *testing.T, files map[string]string) {
		h := newHost(t, files)
		before := h.tree()
		build := newBuild(t, "shim")
		for at := 0; ; at++ {
			h.install(build)
			complete := h.tree()
			o := h.options("")
			var changes *[]string
			o.cut, changes = cutAt(at)
			_, err := Uninstall(t.Context(), o)
			if err == nil {
				return
			}
			if !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			where := (*changes)[at]
			h.install(build)
			if diff := cmp.Diff(complete, h.tree()); diff != "" {
				t.Fatalf("install after a death before %q (-want +got):\n%s", where, diff)
			}
			o.cut, _ = cutAt(at)
			if _, err := Uninstall(t.Context(), o); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			h.uninstall()
			if diff := cmp.Diff(before, h.tree()); diff != "" {
				t.Fatalf("uninstall after a death before %q (-want +got):\n%s", where, diff)
			}
		}
	})
}

// If the installer is killed between changing an engine's file and restarting the
// engine, the next run restarts it.
func TestRestartIsNotForgotten(t *testing.T) {
	h := newHost(t, nodes["containerd 1.x"])
	build := newBuild(t, "shim")
	o := h.options(build)
	var changes *[]string
	o.cut, changes = cutAt(never)
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	last := len(*changes) - 1
	if (*changes)[last] != "remove "+pendingFile {
		t.Fatalf("the last change is %q", (*changes)[last])
	}
	h.uninstall()
	h.cutInstall(build, last)
	h.ran = nil
	h.install(build)
	if got := h.restarts(); got != "containerd" {
		t.Errorf("restarted %q", got)
	}
}

func TestUpgradeLeavesRunningPodsTheirFiles(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	older := h.install(newBuild(t, "shim one")).Version
	h.file("proc/42/cmdline", "/usr/bin/qemu-system-x86_64\x00-kernel\x00"+versionsDir+"/"+older+"/share/kata-containers/vmlinux\x00", 0o644)
	h.restarts()
	config := h.read(containerdConfig)

	second := newBuild(t, "shim two")
	newer := h.install(second).Version
	if newer == older {
		t.Fatal("two builds have one name")
	}
	if got := h.read(ShimPath); got != "shim two" {
		t.Errorf("new pods get %q", got)
	}
	if got := h.read(versionsDir + "/" + older + "/bin/" + shimName); got != "shim one" {
		t.Errorf("running pods have %q", got)
	}
	if h.restarts() != "" || h.read(containerdConfig) != config {
		t.Error("an upgrade restarted containerd")
	}
	if _, err := Uninstall(t.Context(), h.options("")); err == nil || !strings.Contains(err.Error(), "pods run") {
		t.Errorf("uninstall while pods run: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(h.root, "proc/42")); err != nil {
		t.Fatal(err)
	}
	h.install(second)
	if _, err := os.Stat(filepath.Join(h.root, versionsDir, older)); !os.IsNotExist(err) {
		t.Errorf("an unused version stays: %v", err)
	}
}

// If the node's processes cannot be seen, no version is removed.
func TestUpgradeWithoutProc(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	if err := os.RemoveAll(filepath.Join(h.root, "proc")); err != nil {
		t.Fatal(err)
	}
	older := h.install(newBuild(t, "shim one")).Version
	h.install(newBuild(t, "shim two"))
	if _, err := os.Stat(filepath.Join(h.root, versionsDir, older)); err != nil {
		t.Error(err)
	}
	if _, err := Uninstall(t.Context(), h.options("")); !errors.Is(err, errNoProc) {
		t.Errorf("uninstall: %v", err)
	}
	o := h.options("")
	o.Force = true
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// A configuration that is a symbolic link on the node, even an absolute one,
// stays a link.
func TestLinksOfTheNode(t *testing.T) {
	h := newHost(t, map[string]string{"var/lib/node/config.toml": "version = 2\n", "usr/bin/containerd": ""})
	if err := os.MkdirAll(filepath.Join(h.root, "etc/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/var/lib/node/config.toml", filepath.Join(h.root, containerdConfig)); err != nil {
		t.Fatal(err)
	}
	before := h.tree()
	h.install(newBuild(t, "shim"))
	if got := h.read("var/lib/node/config.toml"); !strings.Contains(got, ShimPath) {
		t.Errorf("the link's target has %q", got)
	}
	h.uninstall()
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("after uninstall (-want +got):\n%s", diff)
	}
}

func TestInstallRefusesBeforeItChanges(t *testing.T) {
	good := func(o *Options, h *host) {}
	tests := map[string]struct {
		files map[string]string
		spoil func(o *Options, h *host)
		want  string
	}{
		"no engine": {map[string]string{}, good, "neither containerd nor CRI-O"},
		"no QEMU": {nodes["containerd 2.x"], func(_ *Options, h *host) {
			if err := os.Remove(filepath.Join(h.root, "usr/bin/qemu-system-x86_64")); err != nil {
				t.Fatal(err)
			}
		}, "has no qemu-system-x86_64"},
		"QEMU elsewhere": {nodes["containerd 2.x"], func(_ *Options, h *host) { h.file(ownConfig, "/opt/qemu", 0o600) }, "names: install QEMU"},
		"no such kernel": {nodes["containerd 2.x"], func(_ *Options, h *host) {
			h.file(ownConfig, qemu+" /usr/share/kata-containers/vmlinux", 0o600)
		}, "the node has no file /usr/share/kata-containers/vmlinux, which " + ownConfig + " names as the kernel"},
		"another's kernel": {nodes["containerd 2.x"], func(_ *Options, h *host) {
			h.file(ownConfig, qemu+" "+Home+"/share/kata-containers/other", 0o600)
		}, "the node has no file " + Home},
		"an old QEMU": {nodes["containerd 2.x"], func(o *Options, _ *host) {
			o.run = func(context.Context, string, ...string) ([]byte, error) {
				return []byte("QEMU emulator version 6.2"), nil
			}
		}, "at least 7.2 is needed"},
		"QEMU does not run": {nodes["containerd 2.x"], func(o *Options, _ *host) {
			o.run = func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no library") }
		}, "no library"},
		"a configuration":   {nodes["containerd 2.x"], func(_ *Options, h *host) { h.file(ownConfig, "bad", 0o600) }, ownConfig + ": bad"},
		"another Kata":      {map[string]string{"etc/containerd/config.toml": "version = 2\n", "opt/kata/bin/x": ""}, good, "not Katabox's"},
		"its handler":       {map[string]string{"etc/containerd/config.toml": "version = 2\n[" + handlersV2 + ".kata]\nruntime_path = \"/usr/bin/kata\"\n"}, good, "has a runtime handler kata already"},
		"version 1":         {map[string]string{"etc/containerd/config.toml": "root = \"/x\"\n"}, good, "config migrate"},
		"not TOML":          {map[string]string{"etc/containerd/config.toml": "version = \n"}, good, "read /etc/containerd/config.toml"},
		"an inline table":   {map[string]string{"etc/containerd/config.toml": "version = 2\nplugins = {}\n"}, good, "would no longer be valid TOML"},
		"half a block":      {map[string]string{"etc/containerd/config.toml": blockBegin + "\nversion = 2\n"}, good, "by hand"},
		"containerd's word": {nodes["containerd 2.x"], func(_ *Options, h *host) { h.refuses = errors.New("row 3") }, "row 3"},
		"not taken up":      {nodes["containerd 2.x"], func(_ *Options, h *host) { h.dump = "version = 3\n" }, "would ignore"},
		"no build":          {nodes["containerd 2.x"], func(o *Options, _ *host) { o.From = "/nowhere" }, "--from"},
		"no root":           {nodes["containerd 2.x"], func(o *Options, _ *host) { o.HostRoot = "/proc" }, "not the root of a node"},
		"a wrong handler":   {nodes["containerd 2.x"], func(o *Options, _ *host) { o.Handler = "a.b" }, "handler"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, test.files)
			o := h.options(newBuild(t, "shim"))
			test.spoil(&o, h)
			before := h.tree()
			if _, err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if diff := cmp.Diff(before, h.tree()); diff != "" {
				t.Errorf("it changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRestartByHand(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	if err := os.RemoveAll(filepath.Join(h.root, "run/systemd")); err != nil {
		t.Fatal(err)
	}
	o := h.options(newBuild(t, "shim"))
	if _, err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "restart it by hand") {
		t.Errorf("without systemd: %v", err)
	}
	o.Restart = "never"
	var said []string
	o.Say = func(line string) { said = append(said, line) }
	if _, err := Install(t.Context(), o); err != nil || !strings.Contains(strings.Join(said, "\n"), "restart containerd") {
		t.Errorf("with --restart never: %v, %q", err, said)
	}
}
