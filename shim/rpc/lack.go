package rpc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// lackError is an accept's error that passes. ttrpc's server tries again after one that
// says so, and ends after any other.
type lackError struct{ error }

// Temporary is what ttrpc's server asks an error for.
func (lackError) Temporary() bool { return true }

func (e lackError) Unwrap() error { return e.error }

// asLack marks an error that is the kernel's lack of memory, of which package net does not
// say that it is temporary. A lack of descriptors it marks itself.
func asLack(err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) {
		return lackError{err}
	}
	return err
}
