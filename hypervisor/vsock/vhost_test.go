package vsock

import (
	"os"
	"syscall"
	"testing"
)

// TestTakenCIDIsSkipped claims a context id that another open vhost-vsock
// holds, as another program would: the kernel refuses it, and the claim tries
// the next.
func TestTakenCIDIsSkipped(t *testing.T) {
	other, mine := openDevice(t), openDevice(t)
	taken, err := claimCID(func(cid uint64) error { return setGuestCID(other, cid) })
	must(t, err)

	var errs []error
	got, err := claimCID(func(cid uint64) error {
		if len(errs) == 0 {
			cid = uint64(taken)
		}
		err := setGuestCID(mine, cid)
		errs = append(errs, err)
		return err
	})
	must(t, err)
	if len(errs) != 2 || errs[0] != syscall.EADDRINUSE || got == taken { //nolint:errorlint // an ioctl's
		t.Errorf("claims gave %v and id %d; want EADDRINUSE for %d and another", errs, got, taken)
	}

	must(t, other.Close()) // its id is free now
	if err := setGuestCID(mine, uint64(taken)); err != nil {
		t.Errorf("the id of a closed device: %v", err)
	}
}

// openDevice opens the kernel's vhost-vsock until the test ends.
func openDevice(t *testing.T) *os.File {
	t.Helper()
	file, err := openVhost(defaultVhostPath)
	if err != nil {
		t.Skip("no vhost-vsock on this host:", err)
	}
	t.Cleanup(func() { _ = file.Close() }) // a second Close fails
	return file
}
