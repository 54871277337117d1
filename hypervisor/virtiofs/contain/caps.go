package contain

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Capabilities are those that a thread keeps, the same as virtiofsd's (QEMU,
// tools/virtiofsd/passthrough_ll.c, setup_capabilities).
const Capabilities uint64 = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SETFCAP

// limitCapabilities reduces the calling thread's capabilities to Capabilities,
// with no way to gain others.
func limitCapabilities() error {
	for c := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // beyond the kernel's last one (capabilities(7))
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	return SetEffective(Capabilities)
}

// SetEffective sets the calling thread's effective capabilities, a subset of
// Capabilities, which are its permitted ones.
func SetEffective(effective uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	permitted := Capabilities // a variable: constants do not shift out of range
	data := [2]unix.CapUserData{
		{Effective: uint32(effective), Permitted: uint32(permitted)},
		{Effective: uint32(effective >> 32), Permitted: uint32(permitted >> 32)},
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set capabilities %#x: %w", effective, err)
	}
	return nil
}
