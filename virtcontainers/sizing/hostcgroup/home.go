package hostcgroup

import (
	"errors"
	"os"
)

// Self returns this process's cgroups, for Return.
func Self() ([]byte, error) { return cgroupsOf(os.Getpid()) }

// Return moves this process to the cgroups that Self returned, in this process
// or in its parent. root is as in Options. On an error it is in some of them.
func Return(root string, home []byte) error {
	if root == "" {
		root = DefaultRoot
	}
	found, err := hierarchies(root)
	if err != nil {
		return err
	}
	now, err := Self()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range found {
		if dir := h.of(home); dir != h.of(now) {
			errs = append(errs, move(dir, procsFile, os.Getpid()))
		}
	}
	return errors.Join(errs...)
}
