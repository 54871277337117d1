package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Wanted says which of a process's streams are wanted. A terminal has no
// stderr.
type Wanted struct{ Stdin, Stdout, Stderr bool }

// Stdio are the FIFOs of one process: their names, for Create and Exec, and
// the caller's ends; nil and "" where a stream is not wanted.
type Stdio struct {
	// In, Out and Err are the FIFOs' paths.
	In, Out, Err string
	// Stdin is open for reading too, so that opening it waits for no reader:
	// a write never fails because the shim is gone.
	Stdin *os.File
	// Stdout and Stderr are open for reading. They end when the shim has
	// closed its ends, after the process's last output.
	Stdout, Stderr *os.File

	dir string
}

// MakeStdio makes the FIFOs in a new directory, which must not exist yet, and
// opens the caller's ends. Neither this nor the shim's opening blocks.
func MakeStdio(dir string, want Wanted) (_ *Stdio, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make stdio: %w", err)
	}
	s := &Stdio{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(), s.Remove())
		}
	}()
	for _, end := range []struct {
		wanted bool
		name   string
		flags  int
		path   *string
		file   **os.File
	}{
		{want.Stdin, "stdin", unix.O_RDWR, &s.In, &s.Stdin},
		{want.Stdout, "stdout", unix.O_RDONLY, &s.Out, &s.Stdout},
		{want.Stderr, "stderr", unix.O_RDONLY, &s.Err, &s.Stderr},
	} {
		if !end.wanted {
			continue
		}
		*end.path = filepath.Join(dir, end.name)
		if err := unix.Mkfifo(*end.path, 0o600); err != nil {
			return s, fmt.Errorf("make FIFO %s: %w", *end.path, err)
		}
		if *end.file, err = os.OpenFile(*end.path, end.flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return s, fmt.Errorf("open FIFO: %w", err)
		}
	}
	return s, nil
}

// Remove removes the FIFOs' names. Open ends stay open: once Create, or an exec's
// Start, has returned, the names are not needed any more.
func (s *Stdio) Remove() error { return os.RemoveAll(s.dir) }

// Close closes the caller's ends. It may be called again.
func (s *Stdio) Close() error {
	var errs []error
	for _, f := range []**os.File{&s.Stdin, &s.Stdout, &s.Stderr} {
		if *f != nil {
			// The relay of an output without a reader has closed it.
			if err := (*f).Close(); !errors.Is(err, os.ErrClosed) {
				errs = append(errs, err)
			}
			*f = nil
		}
	}
	return errors.Join(errs...)
}
