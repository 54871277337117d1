package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries bounds how often a dump is repeated that changed while the kernel
// sent it.
const dumpTries = 10

// consistent reads a list until it did not change meanwhile (NLM_F_DUMP_INTR).
func consistent[T any](list func() ([]T, error)) (found []T, err error) {
	for range dumpTries {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}
