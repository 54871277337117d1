// Package looptest makes loop devices; tests only.
package looptest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Over returns a loop device over a file, which disappears with its last user. flags are
// those of loop(4). The test's descriptor is closed at its end.
func Over(t testing.TB, path string, flags uint32) *os.File {
	t.Helper()
	backing, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs loop devices:", err)
	}
	defer control.Close()
	for range 10 { // another process may take the free one
		dev := free(t, control)
		err := unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{
			Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | flags},
		})
		if err == nil {
			return dev
		}
		if !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
	}
	t.Skip("no loop device is free")
	return nil
}

// free opens a loop device without a file.
func free(t testing.TB, control *os.File) *os.File {
	t.Helper()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Skip("needs loop devices:", err)
	}
	dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs loop devices:", err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	return dev
}

// Resize gives a loop device the length of its file, which is set first.
func Resize(t testing.TB, dev *os.File, path string, length int64) {
	t.Helper()
	if err := os.Truncate(path, length); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		t.Fatal(err)
	}
}
