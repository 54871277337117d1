package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/installer"
)

// nodeWith is a node whose QEMU's file begins with start, and prints that version.
func nodeWith(t *testing.T, start, version string) installer.Node {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "qemu-system-x86_64"), []byte(start), 0o600); err != nil {
		t.Fatal(err)
	}
	return installer.Node{
		Run: func(_ context.Context, _ string, args ...string) ([]byte, error) {
			out, err := fakeQEMU(version, args)
			return []byte(out), err
		},
		Path: func(name string) (string, error) { return filepath.Join(root, filepath.Base(name)), nil },
	}
}

func TestNodeQEMU(t *testing.T) {
	const elf, good = "\x7fELF", "QEMU emulator version 7.2.22\n"
	for name, test := range map[string]struct{ start, version, config, want string }{
		"old":                   {elf, "QEMU emulator version 6.2.0 (Debian 1:6.2)\nCopyright ...\n", "", "version 6.2.0 (Debian 1:6.2): at least 7.0"},
		"oldest":                {elf, "QEMU emulator version 7.0.0\n", "", ""},
		"new":                   {elf, "QEMU emulator version 10.0.2\n", "", ""},
		"unknown":               {elf, "hello", "", ""}, // as check, which only warns
		"a script":              {"#!/bin/sh\n", good, "", "is a script"},
		"a script, run as root": {"#!/bin/sh\n", good, "rootless = false", ""},
		"no such board":         {elf, good, "machine_type = 'pc-q35-7.20'", "has no pc-q35-7.20"},
		"no such filter":        {elf, good, "seccompsandbox = 'on,spawn=bogus'", "invalid argument for spawn"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := nodeQEMU.Check(t.Context(), configure(t, "[hypervisor.qemu]\n"+test.config), nodeWith(t, test.start, test.version)); err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// The vsock device is the node's, not that of the machine on which this process runs: a
// node without vhost-vsock needs QEMU's other device. The kernel refuses a file that is
// not its device.
func TestNodeVsock(t *testing.T) {
	root := t.TempDir()
	on := installer.Node{Path: func(name string) (string, error) { return filepath.Join(root, name), nil }}
	if kind, err := onNode(on).vsockKind(t.Context()); kind != vsock.KindVhostUser || err != nil {
		t.Errorf("without the device: %q, %v", kind, err)
	}
	device := filepath.Join(root, "dev/vhost-vsock")
	if err := errors.Join(os.Mkdir(filepath.Dir(device), 0o755), os.WriteFile(device, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if kind, err := onNode(on).vsockKind(t.Context()); !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("with a file in its place: %q, %v", kind, err)
	}
}

// What no file names is the version's own, wherever this program is.
func TestNodeMachine(t *testing.T) {
	for text, want := range map[string]installer.Machine{
		"hypervisor.qemu.path = '/opt/qemu'":                        {Program: "/opt/qemu"},
		"[hypervisor.qemu]\nkernel = '/k'\ninitrd = '/i'":           {Program: "/usr/bin/qemu-system-x86_64", Kernel: "/k", Initrd: "/i"},
		"[hypervisor.qemu]\nfirmware = '/usr/share/ovmf/OVMF.fd'\n": {Program: "/usr/bin/qemu-system-x86_64", Firmware: "/usr/share/ovmf/OVMF.fd"},
	} {
		got, err := nodeQEMU.Machine(configure(t, text))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	if _, err := nodeQEMU.Machine(configure(t, "hypervisor.qemu.default_memory = 'x'")); err == nil || !strings.Contains(err.Error(), "default_memory") {
		t.Errorf("error %v", err)
	}
}
