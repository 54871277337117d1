package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeHost is a host made of files on which every check passes. Tests remove
// parts of it.
type fakeHost struct {
	host
	files    fstest.MapFS
	programs map[string]string
}

// kernelOptions has the options that all network models need.
const kernelOptions = "# CONFIG_X is not set\nCONFIG_NET_SCH_INGRESS=m\nCONFIG_NET_CLS_U32=y\nCONFIG_NET_ACT_MIRRED=m\nCONFIG_MACVTAP=m\n"

// modulesDep lists the modules of these options, as packages of several distributions
// have them.
const modulesDep = "kernel/net/sched/act_mirred.ko.xz:\nkernel/net/sched/sch_ingress.ko.zst: kernel/x.ko.zst\n" +
	"kernel/drivers/net/macvtap.ko: kernel/drivers/net/tap.ko\n"

func newFakeHost(t *testing.T) *fakeHost {
	t.Helper()
	f := &fakeHost{
		files: fstest.MapFS{
			"usr/share/kata-containers/vmlinux":    {Data: []byte("\x7fELF Linux version %s (%s) Linux version 6.1.0-56 (debian) ...")},
			"usr/share/kata-containers/initrd.img": {Data: []byte("initrd")},
			"proc/meminfo":                         {Data: []byte("MemTotal:        8388608 kB\nMemAvailable:    4194304 kB\n")},
			"proc/config.gz":                       {Data: packed(t, kernelOptions)},
			"lib/modules/6.18.1/modules.dep":       {Data: []byte(modulesDep)},
			"lib/modules/6.18.1/modules.builtin":   {Data: []byte("kernel/net/sched/cls_u32.ko\n")},
			"dev/urandom":                          {},
			"proc/sys/user/max_user_namespaces":    {Data: []byte("1000\n")},
		},
		programs: map[string]string{
			"/usr/bin/qemu-system-x86_64": "QEMU emulator version 7.2.22 (Debian 1:7.2)\nCopyright ...\n",
			"/usr/lib/qemu/virtiofsd":     "virtiofsd version 7.2.22 (Debian 1:7.2)\n",
		},
	}
	f.host = host{
		loadConfig: config.Load,
		accel:      func() (hypervisor.Accel, string) { return hypervisor.AccelKVM, "" },
		vsockKind:  func(context.Context) (string, error) { return "vhost-vsock", nil },
		open: func(path string) (io.ReadCloser, error) {
			file, err := f.files.Open(path[1:])
			return file, asPath(err, path)
		},
		openDevice: func(string) error { return nil },
		stat: func(path string) (os.FileInfo, error) {
			info, err := f.files.Stat(path[1:])
			return info, asPath(err, path)
		},
		lookPath: func(name string) (string, error) { return "/usr/local/bin/" + name, nil },
		output: func(_ context.Context, path string, args ...string) (string, error) {
			if out, ok := f.programs[path]; ok {
				return fakeQEMU(out, args)
			}
			return "", &fs.PathError{Op: "exec", Path: path, Err: fs.ErrNotExist}
		},
		jailable: func(string) error { return nil },
		skLookup: func() error { return nil },
		idmap:    func() error { return nil },
		mountIDs: func() error { return nil },
		release:  "6.18.1", executable: "/usr/local/bin/kata-runtime", cpus: 4,
	}
	return f
}

// allDevices has the lines of a real QEMU for the devices that machines may have.
const allDevices = `Controller/Bridge/Hub devices:
name "pci-bridge", bus PCI, desc "Standard PCI Bridge"

Storage devices:
name "scsi-hd", bus SCSI, desc "virtual SCSI disk"
name "vhost-user-fs-pci", bus PCI
name "virtio-blk-pci", bus PCI, alias "virtio-blk"
name "virtio-scsi-pci", bus PCI, alias "virtio-scsi"

Network devices:
name "virtio-net-pci", bus PCI, alias "virtio-net"

Input devices:
name "isa-serial", bus ISA

Misc devices:
name "pc-dimm", desc "DIMM memory module"
name "pvpanic-pci", bus PCI
name "vhost-user-vsock-pci", bus PCI
name "vhost-vsock-pci", bus PCI
name "virtio-balloon-pci", bus PCI, alias "virtio-balloon"
name "virtio-mem-pci", bus PCI
name "virtio-rng-pci", bus PCI, alias "virtio-rng"
`

// fakeQEMU is a QEMU that prints that version.
func fakeQEMU(version string, args []string) (string, error) {
	switch {
	case slices.Equal(args, []string{"-machine", "help"}):
		return "Supported machines are:\nq35                  Standard PC\npc-q35-7.2           Standard PC\n", nil
	case slices.Equal(args, []string{"-device", "help"}):
		return allDevices, nil
	case slices.Equal(args, []string{"-accel", "help"}):
		return "Accelerators supported in QEMU binary:\ntcg\nkvm\n", nil
	case slices.Contains(args, "on,spawn=bogus"):
		return "", &exec.ExitError{Stderr: []byte("qemu: no ui\nqemu-system-x86_64: -sandbox on,spawn=bogus: invalid argument for spawn\n")}
	case slices.Contains(args, "-sandbox"):
		return "", &exec.ExitError{Stderr: []byte("qemu-system-x86_64: Property 'none-machine.katabox' not found\n")}
	default:
		return version, nil
	}
}

// asPath rewrites an error about a file of the map into one about the absolute
// path.
func asPath(err error, path string) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
	}
	return err
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// configure writes a configuration file and returns its path.
func configure(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// call runs the program.
func call(t *testing.T, h host, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"kata-runtime"}, args...), &out, &errs, h)
	return out.String(), errs.String(), code
}

// golden compares got with a file, or rewrites the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test -update writes it anew:\n%s", file, diff)
	}
}
