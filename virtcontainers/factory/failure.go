package factory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/internal/regular"
)

// A template that could not be made or used is retried after firstPause, then
// after twice that, and so on up to lastPause. Failures older than forgetAfter
// no longer count.
const (
	firstPause  = time.Minute
	lastPause   = time.Hour
	forgetAfter = 24 * time.Hour
)

// maxWhy bounds a reason, in bytes.
const maxWhy = 2000

// failedPrefix begins the names of the files that remember failures.
const failedPrefix = "failed-"

// Failure says why there is no template for a key.
type Failure struct {
	Key Key
	Why string
	At  time.Time
	// Times is the number of failures.
	Times int
}

// Next is when it may be tried again.
func (f Failure) Next() time.Time {
	pause := lastPause
	if f.Times < 10 { // firstPause<<9 is beyond lastPause
		pause = min(lastPause, firstPause<<max(f.Times-1, 0))
	}
	return f.At.Add(pause)
}

// due reports whether the template may be retried. It is also true if the clock
// was set back.
func (f Failure) due(now time.Time) bool { return !now.Before(f.Next()) || now.Before(f.At) }

func (f Failure) String() string {
	return fmt.Sprintf("%s; not tried again before %s", f.Why, f.Next().Format(time.RFC3339))
}

// Fail records why a template could not be made or used: pods do not try again
// for a time (Claim). It does not create a store that does not exist.
func (s Store) Fail(key Key, why error) error {
	if !isKey(string(key)) || !exists(s.Dir) {
		return nil
	}
	f := Failure{Key: key, Why: shorten(why.Error()), At: time.Now().UTC(), Times: s.timesBefore(key) + 1}
	if err := s.write(failedPrefix+string(key), f); err != nil {
		return fmt.Errorf("remember why template %s failed: %w", key, err)
	}
	return nil
}

// write writes a file of the store atomically.
func (s Store) write(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.Dir, makingPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Drop removes a template that is unusable, and records why.
func (s Store) Drop(key Key, why error) error { return errors.Join(s.Remove(key), s.Fail(key, why)) }

// Failure returns what Fail last recorded for a key.
func (s Store) Failure(key Key) (Failure, bool) {
	f, err := regular.Open(filepath.Join(s.Dir, failedPrefix+string(key)))
	if err != nil {
		return Failure{}, false
	}
	defer f.Close()
	text, err := readUpTo(f, maxInfo)
	var failure Failure
	if err != nil || json.Unmarshal(text, &failure) != nil || failure.Key != key {
		return Failure{}, false
	}
	return failure, true
}

// Failures lists the recorded failures of templates that do not exist, by key.
func (s Store) Failures() ([]Failure, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list failures: %w", err)
	}
	var list []Failure
	for _, e := range entries {
		key, failed := strings.CutPrefix(e.Name(), failedPrefix)
		if !failed || exists(filepath.Join(s.Dir, key)) {
			continue
		}
		if f, ok := s.Failure(Key(key)); ok {
			list = append(list, f)
		}
	}
	return list, nil
}

// Claim gives the caller the right to make a template of that key now. It fails with
// errdefs.ErrUnavailable while another process makes one, with
// errdefs.ErrFailedPrecondition if it failed too recently, and with
// errdefs.ErrAlreadyExists if the template exists. It does not wait.
func (s Store) Claim(key Key) (*Lock, error) {
	if f, failed := s.Failure(key); failed && !f.due(time.Now()) {
		return nil, fmt.Errorf("%v: %w", f, errdefs.ErrFailedPrecondition)
	}
	l, err := s.Lock()
	if err != nil {
		return nil, err
	}
	if exists(filepath.Join(s.Dir, string(key))) {
		return nil, errors.Join(fmt.Errorf("template %s: %w", key, errdefs.ErrAlreadyExists), l.Close())
	}
	return l, nil
}

// forget removes all recorded failures.
func (s Store) forget() error {
	entries, err := os.ReadDir(s.Dir)
	errs := []error{err}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), failedPrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(s.Dir, e.Name())); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
