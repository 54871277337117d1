package stdio

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Schemes of an engine's end. A path without one is a FIFO's.
const (
	schemeFIFO   = "fifo"
	schemeFile   = "file"
	schemeBinary = "binary"
)

// ends are the engine's open ends; nil where it named none.
type ends struct{ stdin, stdout, stderr *os.File }

// parseEnd splits an end into its scheme and what the scheme reads.
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

// checkEnd refuses what could not be opened later.
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

// openEnds opens what the engine named and notes what Close closes.
func (i *IO) openEnds() (e ends, err error) {
	if e.stdin, err = i.openInput(); err != nil {
		return ends{}, err
	}
	if e.stdout, err = i.openOutput(i.paths.Stdout); err != nil {
		return ends{}, err
	}
	if i.paths.Stderr == i.paths.Stdout && i.paths.Stderr != "" && !isFIFO(i.paths.Stderr) {
		e.stderr = e.stdout // one file for both
		if i.logger != nil {
			e.stderr = i.logger.stderr
		}
		return e, nil
	}
	if e.stderr, err = i.openOutput(i.paths.Stderr); err != nil {
		return ends{}, err
	}
	return e, nil
}

func isFIFO(path string) bool {
	u, err := parseEnd(path)
	return err == nil && u.Scheme == schemeFIFO
}

func (i *IO) openInput() (*os.File, error) {
	if i.paths.Stdin == "" {
		return nil, nil
	}
	u, err := parseEnd(i.paths.Stdin)
	if err != nil {
		return nil, err
	}
	f, err := openFIFO(u.Path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	i.inputs = append(i.inputs, f)
	return f, nil
}

func (i *IO) openOutput(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	u, err := parseEnd(path)
	if err != nil {
		return nil, err
	}
	if u.Scheme == schemeBinary {
		return i.openLogger(u)
	}
	open := openFile
	if u.Scheme == schemeFIFO {
		open = func(path string) (*os.File, error) { return openFIFO(path, os.O_RDWR) }
	}
	f, err := open(u.Path)
	if err != nil {
		return nil, err
	}
	i.outputs = append(i.outputs, f)
	return f, nil
}

// openLogger starts the logger and gives the end for stdout; it takes both.
func (i *IO) openLogger(u *url.URL) (*os.File, error) {
	l, err := startLogger(u, i.paths.Namespace, i.paths.ContainerID)
	if err != nil {
		return nil, err
	}
	i.logger = l
	i.outputs = append(i.outputs, l)
	return l.stdout, nil
}

// openFile opens a file to append to, and makes it and its directory.
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
