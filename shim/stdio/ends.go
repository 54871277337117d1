package stdio

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Schemes of an engine's end. A path without a scheme is a FIFO's.
const (
	schemeFIFO   = "fifo"
	schemeFile   = "file"
	schemeBinary = "binary"
	// schemeBinaryV2 is schemeBinary with a logger that says that it is ready.
	schemeBinaryV2 = "binary-v2"
)

// ends are the engine's open ends; nil where it named none.
type ends struct {
	stdin, stdout, stderr *os.File
	// outputs are what is to be closed for stdout and stderr, and loggers those of
	// them that are programs.
	outputs []closer
	loggers []*logger
}

// parseEnd splits an end into its scheme and the scheme's parameters.
func parseEnd(path string) (*url.URL, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a path nor a URI: %w", path, errdefs.ErrInvalidArgument)
	}
	if u.Scheme == "" {
		u = &url.URL{Scheme: schemeFIFO, Path: path}
	}
	return u, nil
}

// checkEnd refuses an end that could not be opened later.
func checkEnd(path string, schemes ...string) error {
	u, err := parseEnd(path)
	if err != nil {
		return err
	}
	for _, s := range schemes {
		if u.Scheme == s {
			return nil
		}
	}
	return fmt.Errorf("%q: scheme %q is not known here, want one of %v: %w", path, u.Scheme, schemes, errdefs.ErrInvalidArgument)
}

// openEnds opens the ends that the engine named. On an error it also returns
// those already opened.
func (i *IO) openEnds() (e ends, err error) {
	if i.paths.Stdin != "" {
		u, err := parseEnd(i.paths.Stdin)
		if err != nil {
			return e, err
		}
		if e.stdin, err = openFIFO(u.Path, i.inputMode()); err != nil {
			return e, err
		}
	}
	stdout, err := i.openOutput(i.paths.Stdout, &e)
	if err != nil {
		return e, err
	}
	e.stdout = stdout.out
	if i.paths.Terminal {
		return e, nil // engines name a stderr that they do not make
	}
	if i.paths.Stderr == i.paths.Stdout && !isFIFO(i.paths.Stderr) {
		e.stderr = stdout.err // one file, or one logger, for both
		return e, nil
	}
	stderr, err := i.openOutput(i.paths.Stderr, &e)
	e.stderr = stderr.err
	return e, err
}

func isFIFO(path string) bool {
	u, err := parseEnd(path)
	return err == nil && u.Scheme == schemeFIFO
}

// sink is where an output end writes stdout and stderr: the same file, except for
// a logger.
type sink struct{ out, err *os.File }

func (i *IO) openOutput(path string, e *ends) (sink, error) {
	if path == "" {
		return sink{}, nil
	}
	u, err := parseEnd(path)
	if err != nil {
		return sink{}, err
	}
	if u.Scheme == schemeBinary || u.Scheme == schemeBinaryV2 {
		l, err := startLogger(u, i.paths.Namespace, i.paths.LoggerID)
		if err != nil {
			return sink{}, err
		}
		e.outputs, e.loggers = append(e.outputs, l), append(e.loggers, l)
		return sink{l.stdout, l.stderr}, nil
	}
	open := openFile
	if u.Scheme == schemeFIFO {
		open = i.openOutputFIFO
	}
	f, err := open(u.Path)
	if err != nil {
		return sink{}, err
	}
	e.outputs = append(e.outputs, f)
	return sink{f, f}, nil
}

// inputMode returns how to open the stdin FIFO: for writing too if a terminal's
// client may detach and another attach, as containerd's do. The end of the first
// client's input is then not the terminal's; CloseStdin is.
func (i *IO) inputMode() int {
	if i.paths.Terminal && !i.paths.ReadersStay {
		return os.O_RDWR
	}
	return os.O_RDONLY
}

// openOutputFIFO opens a FIFO for reading too, so that output waits for a reader
// to come back, unless none can. If it is a file it is appended to, as runc's shim
// does; a FIFO ignores O_APPEND.
func (i *IO) openOutputFIFO(path string) (*os.File, error) {
	if i.paths.ReadersStay {
		return openFIFO(path, os.O_WRONLY|os.O_APPEND)
	}
	return openFIFO(path, os.O_RDWR|os.O_APPEND)
}

// openFile opens a file to append to, and creates it and its directory.
func openFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	return f, nil
}
