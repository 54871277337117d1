package factory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// Inputs are what a template was made of.
type Inputs struct {
	// Machine describes the machine as the VMM gets it (hypervisor.Monitor's
	// Describe).
	Machine []string
	// Files are the files that make the machine, by path.
	Files map[string]File
	// Host is the host's part: a template is void after a reboot of the host.
	Host Host
}

// File identifies the file at a path and its version.
type File struct {
	Dev, Inode    uint64
	Bytes         int64
	Mtime, Change string // in nanoseconds since 1970
}

// Host is the host's part in a machine.
type Host struct {
	BootID, Kernel string
	// CPU is the model and the flags of the host's first CPU: with KVM they are
	// the guest's too.
	CPU string
}

// InputsOf collects what a machine is made of. The VMM's default firmware is
// not among the files: it is in the saved state.
func InputsOf(m hypervisor.Monitor, spec hypervisor.Spec) (Inputs, error) {
	machine, err := m.Describe(spec)
	if err != nil {
		return Inputs{}, err
	}
	in := Inputs{Machine: machine, Files: make(map[string]File)}
	for _, path := range []string{spec.Path, spec.Kernel, spec.Initrd, spec.Firmware} {
		if path == "" {
			continue
		}
		if err := in.AddFile(path); err != nil {
			return Inputs{}, err
		}
	}
	in.Host, err = ThisHost()
	return in, err
}

// AddFile adds a file that the machine is made of. It fails if that is missing.
func (in Inputs) AddFile(path string) (err error) {
	in.Files[path], err = fileAt(path)
	return err
}

func fileAt(path string) (File, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return File{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return File{
		Dev: st.Dev, Inode: st.Ino, Bytes: st.Size,
		Mtime: fmt.Sprint(st.Mtim.Nano()), Change: fmt.Sprint(st.Ctim.Nano()),
	}, nil
}

// ThisHost describes this host.
func ThisHost() (Host, error) {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Host{}, err
	}
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Host{}, err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Host{}, os.NewSyscallError("uname", err)
	}
	return Host{
		BootID: strings.TrimSpace(string(bootID)), Kernel: unix.ByteSliceToString(name.Release[:]), CPU: firstCPU(string(cpus)),
	}, nil
}

// firstCPU returns the constant facts that /proc/cpuinfo has about the first
// CPU.
func firstCPU(cpuinfo string) string {
	var lines []string
	for line := range strings.Lines(cpuinfo) {
		name, _, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags":
			lines = append(lines, strings.TrimSpace(line))
		case "": // the end of the first
			return strings.Join(lines, "\n")
		}
	}
	return strings.Join(lines, "\n")
}

// Key names a template.
type Key string

// KeyOf returns the key of templates made of the inputs.
func KeyOf(in Inputs) (Key, error) {
	text, err := json.Marshal(struct {
		Format int
		Inputs Inputs
	}{format, in})
	if err != nil {
		return "", fmt.Errorf("describe a template's inputs: %w", err)
	}
	sum := sha256.Sum256(text)
	return Key(hex.EncodeToString(sum[:keyBytes])), nil
}

// keyBytes is how much of the hash is used.
const keyBytes = 16

// format is the version of a template's directory and of how machines are
// saved.
const format = 1
