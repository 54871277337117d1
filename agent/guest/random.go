package guest

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reseed reseeds the kernel's random number generator with bytes that are
// unknown in the guest. Earlier results stay the same: the keys that the kernel
// made at its start, and the seeds of the agent's maps.
func Reseed(entropy []byte) error {
	if err := reseed(entropy); err != nil {
		return fmt.Errorf("seed the random number generator: %w", err)
	}
	return nil
}

func reseed(entropy []byte) error {
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	pool := poolInfo(entropy)
	// random(4). The first call credits the bytes as entropy, and the second
	// reseeds the generator immediately instead of after up to a minute.
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool[0]))); errno != 0 {
		return os.NewSyscallError("RNDADDENTROPY", errno)
	}
	_, err = unix.IoctlRetInt(int(f.Fd()), unix.RNDRESEEDCRNG)
	return os.NewSyscallError("RNDRESEEDCRNG", err)
}

// poolInfo encodes the kernel's struct rand_pool_info (linux/random.h): the
// number of random bits, the number of bytes, and the bytes.
func poolInfo(entropy []byte) []byte {
	info := make([]byte, 0, 8+len(entropy))
	info = binary.NativeEndian.AppendUint32(info, uint32(8*len(entropy)))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(entropy)))
	return append(info, entropy...)
}
