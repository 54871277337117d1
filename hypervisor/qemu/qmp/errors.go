package qmp

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed means that the connection to QEMU is gone: QEMU ended, sent
// something that is not QMP, or Disconnect was called. The cause is in the
// error's text and chain.
var ErrClosed = errors.New("monitor connection is closed")

// Error classes (QEMU's qapi/error.json): those that callers and tests name.
const (
	ClassGenericError   = "GenericError"
	ClassDeviceNotFound = "DeviceNotFound"
)

// Error is QEMU's refusal of a command. The command had no effect.
type Error struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// maxDesc bounds the text of a refusal, in bytes: it goes to the engine and into logs.
const maxDesc = 4 << 10

// bound cuts what a compromised QEMU may have made too long.
func (e *Error) bound() {
	for _, text := range []*string{&e.Class, &e.Desc} {
		if len(*text) > maxDesc {
			*text = strings.ToValidUTF8((*text)[:maxDesc], "") + " [cut]"
		}
	}
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Class, e.Desc) }

// IsClass reports whether err is a refusal of that class.
func IsClass(err error, class string) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == class
}

// closedError is ErrClosed with its cause.
type closedError struct{ cause error }

func (e *closedError) Error() string   { return fmt.Sprintf("%v: %v", ErrClosed, e.cause) }
func (e *closedError) Unwrap() []error { return []error{ErrClosed, e.cause} }
