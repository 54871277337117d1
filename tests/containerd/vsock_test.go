package containerd

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// A container reaches nothing over vsock: neither the host's listeners, nor the
// guest's agent by any CID, privileged or not, with either transport, even
// without engines' seccomp profiles (disable_guest_seccomp), as here.
func TestContainersHaveNoVsock(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		want := map[string]uint32{}
		for _, cid := range []uint32{unix.VMADDR_CID_LOCAL, unix.VMADDR_CID_HOST, 3, unix.VMADDR_CID_ANY} {
			for _, port := range []uint32{22, 1024, 1025, 1026, 1027, 1028} {
				name := fmt.Sprintf("cid-%d-port-%d", cid, port)
				address := binary.LittleEndian.AppendUint32([]byte{unix.AF_VSOCK, 0, 0, 0}, port)
				address = binary.LittleEndian.AppendUint32(address, cid)
				connector(t, filepath.Join(dir, name), address)
				want[name] = uint32(unix.EAFNOSUPPORT)
			}
		}
		// Check that the program can make sockets; otherwise its failures would
		// prove nothing.
		connector(t, filepath.Join(dir, "inet"), []byte{unix.AF_INET, 0, 0, 9, 127, 0, 0, 1})
		want["inet"] = uint32(unix.ECONNREFUSED)

		pod := newPod(ctx, t, d)
		mount := oci.WithMounts([]specs.Mount{{Type: "bind", Source: dir, Destination: "/probe", Options: []string{"rbind", "ro"}}})
		for name, spec := range map[string][]oci.SpecOpts{
			"plain": {mount}, "privileged": {mount, oci.WithPrivileged, oci.WithAllDevicesAllowed, oci.WithNewPrivileges},
		} {
			c := add(ctx, t, pod, harness.ContainerConfig{Name: name, Args: []string{"sleep", "100000"}, Spec: spec})
			for program, status := range want {
				_, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"/probe/" + program}})
				if err != nil || code != status {
					t.Errorf("%s container, %s: %s, %v; want %s", name, program, unix.Errno(code), err, unix.Errno(status))
				}
			}
		}
	})
}

// connector writes an ELF program that connects a stream socket to an address
// and exits with the errno, or 0. An address begins with its family.
func connector(t *testing.T, path string, address []byte) {
	t.Helper()
	const base, head = 0x400000, 64 + 56
	code := []byte{
		0xb8, 41, 0, 0, 0, // mov eax, SYS_socket
		0xbf, address[0], 0, 0, 0, // mov edi, family
		0xbe, unix.SOCK_STREAM, 0, 0, 0, // mov esi, type
		0x31, 0xd2, // xor edx, edx
		0x0f, 0x05, // syscall
		0x48, 0x85, 0xc0, // test rax, rax
		0x78, 21, // js to the end
		0x89, 0xc7, // mov edi, eax
		0xb8, 42, 0, 0, 0, // mov eax, SYS_connect
		0x48, 0x8d, 0x35, 19, 0, 0, 0, // lea rsi, the address
		0xba, 16, 0, 0, 0, // mov edx, its size
		0x0f, 0x05, // syscall
		0x48, 0xf7, 0xd8, // the end: neg rax
		0x89, 0xc7, // mov edi, eax
		0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
		0x0f, 0x05, // syscall
	}
	code = append(append(code, address...), make([]byte, 16-len(address))...)
	le, size := binary.LittleEndian, uint64(head+len(code))
	elf := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	elf = le.AppendUint16(le.AppendUint16(elf, 2), 62) // ET_EXEC, EM_X86_64
	elf = le.AppendUint32(elf, 1)
	for _, word := range []uint64{base + head, 64, 0} { // entry, phoff, shoff
		elf = le.AppendUint64(elf, word)
	}
	elf = le.AppendUint32(elf, 0)
	for _, half := range []uint16{64, 56, 1, 0, 0, 0} {
		elf = le.AppendUint16(elf, half)
	}
	elf = le.AppendUint32(le.AppendUint32(elf, 1), 5) // PT_LOAD, read and execute
	for _, word := range []uint64{0, base, base, size, size, 0x1000} {
		elf = le.AppendUint64(elf, word)
	}
	if err := os.WriteFile(path, append(elf, code...), 0o755); err != nil {
		t.Fatal(err)
	}
}
