package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// host is a made-up node, with the programs that were run on it.
type host struct {
	t    *testing.T
	root string
	// version is what its containerd prints as its version, dump the output of
	// "config dump"; an error stands for a containerd that does not accept its
	// configuration.
	version string
	dump    string
	refuses error
	// noUnit are services that systemd does not know.
	noUnit []string
	ran    []string
}

// accepted is the dump of a containerd with the handler.
const accepted = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\nruntime_path = '" + ShimPath + "'\n"

func newHost(t *testing.T, files map[string]string) *host {
	h := &host{t: t, root: memoryDir(t), version: "containerd github.com/containerd/containerd/v2 v2.4.2 abc", dump: accepted}
	for _, dir := range []string{"etc", "opt", "proc/1", "run/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(h.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.file("proc/1/cmdline", "/sbin/init\x00", 0o644)
	h.file("usr/bin/qemu-system-x86_64", "", 0o755)
	for name, text := range files {
		for _, engine := range []string{"containerd", "crio"} {
			if strings.HasPrefix(strings.TrimPrefix(name, "/"), "etc/"+engine+"/") {
				h.file(unitOf(engine), "[Service]\n", 0o644)
			}
		}
		mode := fs.FileMode(0o600)
		if strings.HasPrefix(name, "usr/bin/") {
			mode = 0o755
		}
		h.file(name, text, mode)
	}
	return h
}

// unitOf returns the file of an engine's service.
func unitOf(engine string) string { return "usr/lib/systemd/system/" + engine + ".service" }

// memoryDir makes a directory in memory: the installer syncs after each change,
// and these tests make thousands of changes.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "katabox-installer") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (h *host) file(name, text string, mode fs.FileMode) {
	h.t.Helper()
	path := filepath.Join(h.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

func (h *host) run(_ context.Context, program string, args ...string) ([]byte, error) {
	line := program + " " + strings.Join(args, " ")
	h.ran = append(h.ran, line)
	switch {
	case slices.ContainsFunc(h.noUnit, func(name string) bool { return strings.HasSuffix(line, " "+name+".service") }):
		if args[0] == "show" {
			return []byte("LoadState=not-found\n"), nil
		}
		return nil, fmt.Errorf("Unit %s not found", args[len(args)-1])
	case line == "containerd --version":
		return []byte(h.version), nil
	case line == qemu+" --version":
		return []byte("QEMU emulator version 7.2.22\n"), nil
	case strings.HasSuffix(line, "config dump"):
		return []byte(h.dump), h.refuses
	default:
		return nil, nil
	}
}

// restarts lists the services that were restarted since the last call.
func (h *host) restarts() string {
	var services []string
	for _, line := range h.ran {
		if service, ok := strings.CutPrefix(line, "systemctl try-restart "); ok {
			services = append(services, strings.TrimSuffix(service, ".service"))
		}
	}
	h.ran = nil
	return strings.Join(services, " ")
}

func (h *host) options(from string) Options {
	return Options{HostRoot: h.root, From: from, Version: "1.0", Engine: "auto", Handler: "kata", Restart: "auto", Hypervisor: hypervisor, run: h.run}
}

func (h *host) install(from string) *Result {
	h.t.Helper()
	r, err := Install(h.t.Context(), h.options(from))
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *host) uninstall() {
	h.t.Helper()
	if _, err := Uninstall(h.t.Context(), h.options("")); err != nil {
		h.t.Fatal(err)
	}
}

// tree returns everything on the node: modes, contents, targets of links.
func (h *host) tree() map[string]string {
	h.t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(h.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + target
		}
		name, err := filepath.Rel(h.root, path)
		tree[name] = text
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return tree
}

// qemu is the program that the build's configuration names.
const qemu = "/usr/bin/qemu-system-x86_64"

// hypervisor takes the program and the kernel from the words of a configuration's
// first line, without a program from a line with "bad".
var hypervisor = Hypervisor{
	Machine: func(file string) (Machine, error) {
		text, err := os.ReadFile(file)
		line, _, _ := strings.Cut(string(text), "\n")
		words := append(strings.Fields(line), "", "")
		switch {
		case err != nil:
			return Machine{}, err
		case strings.Contains(line, "bad"):
			return Machine{}, fmt.Errorf("%s: bad", file)
		case strings.HasPrefix(line, "/"):
			return Machine{Program: words[0], Kernel: words[1]}, nil
		default:
			return Machine{Program: qemu}, nil
		}
	},
	Check: func(ctx context.Context, _ string, on Node) error {
		printed, err := on.Run(ctx, qemu, "--version")
		if err == nil && !strings.Contains(string(printed), "7.2") {
			err = errors.New("at least 7.2 is needed")
		}
		return err
	},
}

// newBuild makes a build with shim as the content of the shim.
func newBuild(t *testing.T, shim string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bin/" + shimName: shim, "bin/" + toolName: "tool", "share/kata-containers/vmlinux": "kernel",
		"share/kata-containers/initrd.img": "initrd", "share/defaults/kata-containers/configuration.toml": "# config\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// errCut stands for the death of the process.
var errCut = errors.New("cut")

// cutAt returns a function for Options.cut that stops everything at change number
// at, and a list of the changes so far.
func cutAt(at int) (cut func(string) error, changes *[]string) {
	changes = &[]string{}
	return func(change string) error {
		*changes = append(*changes, change)
		if len(*changes) > at {
			return fmt.Errorf("%s: %w", change, errCut)
		}
		return nil
	}, changes
}

// never is larger than the number of changes.
const never = 1 << 20

// nodes are configurations that nodes have.
var nodes = map[string]map[string]string{
	"containerd 1.x": {"etc/containerd/config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"pause\""},
	"containerd 2.x": {"etc/containerd/config.toml": "version = 3\nroot = \"/x\"\n"},
	"drop-ins": {
		"etc/containerd/config.toml":       "version = 3\nimports = ['conf.d/*.toml']\n",
		"etc/containerd/conf.d/other.toml": "version = 3\n",
	},
	"only comments": {"etc/containerd/config.toml": "# nothing\n"},
	"an empty file": {"etc/containerd/config.toml": ""},
	"other imports": {"etc/containerd/config.toml": "version = 3\nimports = ['/etc/more.toml']\n"},
	"no file":       {"usr/bin/containerd": ""},
	"CRI-O":         {"etc/crio/crio.conf": "[crio]\n"},
	"both":          {"etc/crio/crio.conf.d/10.conf": "[crio]\n", "etc/containerd/config.toml": "version = 2\n"},
}

// eachNode runs a test on each kind of node.
func eachNode(t *testing.T, test func(t *testing.T, files map[string]string)) {
	names := make([]string, 0, len(nodes))
	for name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { test(t, nodes[name]) })
	}
}
