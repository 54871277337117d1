package container

import (
	"errors"
	"regexp"
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

// ofExec matches what os/exec and execve(2) say about a command: exec: "x": ..., or
// exec /x: ... Errors of the runtime also name executables, and what it executes.
var ofExec = regexp.MustCompile(`\bexec(: "| [./]| [^ ]+: )`)

// startError determines why a command did not start. The guest's runtime reports
// that only as text: that of Go's os/exec and of the kernel's errors.
func startError(err error) error {
	text := err.Error()
	if !ofExec.MatchString(text) {
		return err
	}
	for _, reason := range []struct {
		text string
		code int
	}{
		{"executable file not found in $PATH", ExitNotThere},
		{"no such file or directory", ExitNotThere},
		{"permission denied", ExitNoPermit},
		{"exec format error", ExitNoPermit},
		{"is a directory", ExitNoPermit},
	} {
		if strings.Contains(text, reason.text) {
			return &StartError{Code: reason.code, Err: err}
		}
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
