package qemu

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
)

// The names in the jail of what QEMU opens by path. It gets everything else as
// descriptors: by inheritance, or by QMP.
const (
	jailKernel   = "/boot/kernel"
	jailInitrd   = "/boot/initrd"
	jailFirmware = "/boot/firmware"
	jailMemory   = "/memory"
	// jailDescriptors is a directory of QEMU's own descriptors.
	jailDescriptors = "/fd"
)

const kvmDevice = "/dev/kvm"

// libraryDirs are where libraries are, QEMU's own modules among them, and what
// the loader needs to find them: the usual directories, NixOS's, Guix's.
var libraryDirs = []string{
	"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
	"/etc/ld.so.cache", "/etc/alternatives", "/nix/store", "/gnu/store",
}

// dataDirs are the directories below a prefix for QEMU's firmware, option
// ROMs and remaining libraries: Debian's, Fedora's, SUSE's, Kata Containers'.
var dataDirs = []string{
	"lib", "lib64", "share/qemu", "share/kata-qemu", "share/qemu-kvm", "share/qemu-firmware", "share/seabios", "share/seavgabios", "share/sgabios",
	"share/vgabios", "share/ipxe", "share/ipxe.efi", "share/ovmf", "share/OVMF", "share/edk2", "share/edk2-ovmf",
}

// jail returns QEMU's jail, and its spec with the files' names there. firmware
// is a path, or empty.
func jail(spec hypervisor.Spec, firmware string) (*child.Jail, hypervisor.Spec, string, error) {
	path, err := program(spec.Path)
	if err != nil {
		return nil, spec, "", err
	}
	j := &child.Jail{UID: spec.Jail.UID, GID: spec.Jail.GID, Show: shown(path)}
	spec.Path = path
	file := func(from, name string) string {
		if from == "" {
			return ""
		}
		j.Files = append(j.Files, child.Shown{Path: filepath.Clean(from), Name: name})
		return name
	}
	spec.Kernel = file(spec.Kernel, jailKernel)
	spec.Initrd = file(spec.Initrd, jailInitrd)
	firmware = file(firmware, jailFirmware)
	if spec.Memory.Dir != "" {
		j.Dirs = []child.Shown{{Path: filepath.Clean(spec.Memory.Dir), Name: jailMemory}}
		spec.Memory.Dir = jailMemory
	}
	if isPrivate(spec) {
		j.Descriptors = jailDescriptors
	}
	if spec.Accel == hypervisor.AccelKVM {
		j.Devices = []string{kvmDevice}
	}
	return j, spec, firmware, nil
}

// CheckProgram reports why a QEMU executable cannot run in a jail (Spec.Jail),
// or nil. An error is an errdefs.ErrInvalidArgument, unless the file cannot be
// read.
func CheckProgram(path string) error {
	_, err := program(path)
	return err
}

// program is QEMU's executable itself: an ELF file, whose loader and libraries
// are shown. A wrapper script is refused, because neither its interpreter nor
// what it starts can be determined from the file; in the jail it would fail
// with "no such file or directory" although the script exists.
func program(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("find monitor executable: %w", err)
	}
	start, err := head(path)
	if err != nil {
		return "", fmt.Errorf("inspect monitor executable: %w", err)
	}
	if bytes.HasPrefix(start, []byte(elf.ELFMAG)) {
		return path, nil
	}
	kind := "not an ELF program"
	if bytes.HasPrefix(start, []byte("#!")) {
		kind = "a script"
	}
	return "", fmt.Errorf("monitor executable %s is %s: only an ELF program can run in QEMU's own root directory: "+
		"set hypervisor.qemu.path to the QEMU program itself, or hypervisor.qemu.rootless = false: %w",
		path, kind, errdefs.ErrInvalidArgument)
}

// shown returns the host's paths that a QEMU needs to start.
func shown(executable string) []string {
	paths := libraryDirs[:len(libraryDirs):len(libraryDirs)]
	for _, prefix := range prefixes(executable) {
		for _, dir := range dataDirs {
			if path := filepath.Join(prefix, dir); !covered(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	if !covered(paths, executable) {
		paths = append(paths, executable)
	}
	return paths
}

// prefixes returns where a QEMU may look for its data: beside its executable, or
// where it was meant to be installed, if it was built without --enable-relocatable,
// as Debian's is.
func prefixes(executable string) []string {
	return slices.Compact([]string{filepath.Dir(filepath.Dir(executable)), "/usr"})
}

func covered(dirs []string, path string) bool {
	for _, dir := range dirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
