package command

import (
	"cmp"

	"github.com/katabox/katabox/shim/oci/monitor"
)

// errOutputLost is the exit code for a process that ended with 0, but not all of whose
// output could be written. It is that of the commands without an engine.
const errOutputLost = ExitError(125)

// codedError is an error that ends the program with another code than 1.
type codedError struct {
	code  ExitError
	cause error
}

func (e codedError) Error() string { return e.cause.Error() }

func (e codedError) Unwrap() error { return e.cause }

// ended makes the end of a process in the foreground that of the command.
func ended(exit monitor.Exit) error {
	code := ExitError(exit.Code)
	switch {
	case exit.Lost != nil:
		return codedError{code: cmp.Or(code, errOutputLost), cause: exit.Lost}
	case code != 0:
		return code
	}
	return nil
}
