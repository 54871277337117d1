package vsock

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vhostSetGuestCID is VHOST_VSOCK_SET_GUEST_CID, _IOW(0xAF, 0x60, __u64)
// (include/uapi/linux/vhost.h).
const vhostSetGuestCID = 0x4008af60

// cidAttempts bounds the search; a host has far fewer machines than ids.
const cidAttempts = 64

// claimCID finds an id that no other guest of the host has. The kernel
// arbitrates: set fails with EADDRINUSE for a taken id, so two claims never get
// the same.
func claimCID(set func(cid uint64) error) (uint32, error) {
	for range cidAttempts {
		cid, err := randomCID()
		if err != nil {
			return 0, err
		}
		err = set(uint64(cid))
		if err == nil {
			return cid, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("claim context id %d: %w", cid, err)
		}
	}
	return 0, fmt.Errorf("claim context id: %d random ones are taken: %w", cidAttempts, syscall.EADDRINUSE)
}

// randomCID picks an id that a guest may have: not the hypervisor's, the
// host's, or the wildcard (virtio 1.2, section 5.10.4).
func randomCID() (uint32, error) {
	const first, wildcard = 3, 1<<32 - 1
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw context id: %w", err)
	}
	return uint32(first + binary.NativeEndian.Uint64(b[:])%(wildcard-first)), nil
}

func setGuestCID(file *os.File, cid uint64) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("use vhost-vsock: %w", err)
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, vhostSetGuestCID, uintptr(unsafe.Pointer(&cid)))
	})
	runtime.KeepAlive(&cid)
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
