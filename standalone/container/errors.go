package container

import (
	"errors"
	"strings"
)

// Exit codes of a command that could not be run, as in shells and Docker.
const (
	ExitError    = 125 // an error of the runtime
	ExitNoPermit = 126 // the command cannot be run
	ExitNotThere = 127 // the command does not exist
)

// StartError is the failure to start a command, with the exit code for the
// reason.
type StartError struct {
	Code int
	Err  error
}

func (e *StartError) Error() string { return "start command: " + e.Err.Error() }

func (e *StartError) Unwrap() error { return e.Err }

// startError determines why a command did not start. The guest's runtime reports
// that only as text: that of Go's os/exec and of the kernel's errors.
func startError(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "executable file not found in $PATH"), strings.Contains(text, "no such file or directory") && strings.Contains(text, "exec"):
		return &StartError{Code: ExitNotThere, Err: err}
	case strings.Contains(text, "exec") && (strings.Contains(text, "permission denied") ||
		strings.Contains(text, "exec format error") || strings.Contains(text, "is a directory")):
		return &StartError{Code: ExitNoPermit, Err: err}
	}
	return err
}

// CodeOf returns the exit code for an error of a run or an exec.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*StartError](err); ok {
		return e.Code
	}
	return ExitError
}
