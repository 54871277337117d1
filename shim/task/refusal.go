package task

import (
	"github.com/containerd/errdefs"
)

// refusedError is an error of Create that is not errdefs.ErrNotImplemented, which
// containerd takes for a shim without this version of the task API: it calls the
// older version's Create then (core/runtime/v2, TaskManager.Create), and a machine
// that had booted for the first call would boot again.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// Is implements errors.Is. There is no Unwrap, which would show what it hides.
func (e *refusedError) Is(target error) bool { return target == errdefs.ErrFailedPrecondition }

// asRefusal makes an error that says that something is not implemented, here or in
// the guest, a failed precondition with the same text.
func asRefusal(err error) error {
	if errdefs.IsNotImplemented(err) {
		return &refusedError{text: err.Error()}
	}
	return err
}
