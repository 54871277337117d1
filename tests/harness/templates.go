package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// usesTemplates reports whether the daemon's pods are to use templates because of
// the environment.
func (d *Daemon) usesTemplates() bool {
	_, use := d.options.Kata.templates(d.KataConfigPath())
	return use && d.options.Runtime.VM
}

// shareTemplates makes the daemon a user of made, if its pods use templates.
func (d *Daemon) shareTemplates() error {
	if !d.usesTemplates() {
		return nil
	}
	err := made.join()
	d.sharesTemplates = err == nil
	return err
}

func (d *Daemon) unshareTemplates() error {
	if !d.sharesTemplates {
		return nil
	}
	d.sharesTemplates = false
	return made.leave()
}

// makeTemplate makes the template of the daemon's pods, if they are to use one and
// no daemon of this process has made it. For some configurations there can be none.
func (d *Daemon) makeTemplate(ctx context.Context) error {
	if !d.usesTemplates() {
		return nil
	}
	dir, _ := d.options.Kata.templates(d.KataConfigPath())
	if err := made.lend(dir); err != nil {
		return fmt.Errorf("lend templates: %w", err)
	}
	out, err := d.Factory(ctx, "init")
	if err != nil && !strings.Contains(out, "have no templates") {
		return fmt.Errorf("make the template of %s: %w: %s", EnvTemplate, err, out)
	}
	if err := made.keep(dir); err != nil {
		return fmt.Errorf("keep templates: %w", err)
	}
	return nil
}

// destroyTemplates removes the template, and the spares.
func (d *Daemon) destroyTemplates(ctx context.Context) error {
	if !d.usesTemplates() {
		return nil
	}
	if out, err := d.Factory(ctx, "destroy"); err != nil {
		return fmt.Errorf("remove the template of %s: %w: %s", EnvTemplate, err, out)
	}
	return nil
}

// made has the templates that the daemons of this process have made. A template is
// a directory of files that do not change, named by a hash of all that it was made of,
// and found by that name alone: daemons whose pods need the same one have links to
// its files, so that not each of them boots a machine. No daemon sees what
// another one's pods do to a template.
var made templateStock

// templateStock lends templates as long as a daemon runs. Its methods may be called
// from several goroutines.
type templateStock struct {
	mu    sync.Mutex
	dir   string // exists while there are users
	users int
}

// join makes the caller a user, until it calls leave.
func (s *templateStock) join() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		dir, err := os.MkdirTemp("/tmp", "kbt") // where the daemons' directories are: links do not leave a file system
		if err != nil {
			return fmt.Errorf("make directory of templates: %w", err)
		}
		s.dir = dir
	}
	s.users++
	return nil
}

// leave removes the templates if the caller was the last user.
func (s *templateStock) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// lend links all templates into the directory, in which there are none yet.
func (s *templateStock) lend(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return linkTemplates(s.dir, dir)
}

// keep links the directory's templates that are new into the stock.
func (s *templateStock) keep(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return linkTemplates(dir, s.dir)
}

// linkTemplates makes links in to to those templates in from that it lacks. A
// template that is being made, or has failed, has a hyphen in its name.
func linkTemplates(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return ignoreGone(err) // there can be no template
	}
	for _, e := range entries {
		target := filepath.Join(to, e.Name())
		_, err := os.Lstat(target)
		if err == nil || !e.IsDir() || strings.Contains(e.Name(), "-") {
			continue
		}
		if err := linkFiles(filepath.Join(from, e.Name()), target); err != nil {
			return errors.Join(err, os.RemoveAll(target))
		}
	}
	return nil
}

// templateFiles are what a template consists of (package factory). Others in its
// directory tell of its use.
var templateFiles = []string{"memory", "state", "template.json"}

func linkFiles(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range templateFiles {
		if err := os.Link(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
