package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries bounds how often a list is asked for that changed while the
// kernel told it.
const dumpTries = 10

// consistent reads a list until none of its parts changed meanwhile
// (NLM_F_DUMP_INTR).
func consistent[T any](list func() ([]T, error)) (found []T, err error) {
	for range dumpTries {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}
