package factory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Attempt is a try that counts as a failure until it has succeeded: a process
// that is killed can record nothing.
type Attempt struct {
	store   Store
	failure Failure
}

// Begin records that a try has begun. The caller has the lock (Claim).
func (s Store) Begin(key Key) (*Attempt, error) {
	a := &Attempt{store: s, failure: Failure{
		Key: key, Why: "it is being made, or the process that made it was killed", At: time.Now().UTC(), Times: s.timesBefore(key) + 1,
	}}
	return a, a.write()
}

// Failed records why the try failed.
func (a *Attempt) Failed(why error) error {
	a.failure.Why, a.failure.At = shorten(why.Error()), time.Now().UTC()
	return a.write()
}

func (a *Attempt) write() error { return a.store.write(failedPrefix+string(a.failure.Key), a.failure) }

// Succeeded removes the record of this try and of those before.
func (a *Attempt) Succeeded() error {
	err := os.Remove(filepath.Join(a.store.Dir, failedPrefix+string(a.failure.Key)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// timesBefore returns how often a key has failed recently.
func (s Store) timesBefore(key Key) int {
	before, ok := s.Failure(key)
	if !ok || time.Since(before.At) >= forgetAfter {
		return 0
	}
	return before.Times
}

// shorten bounds a reason.
func shorten(why string) string { return strings.ToValidUTF8(why[:min(len(why), maxWhy)], "") }

// Due reports whether the template of that key may be tried now.
func (s Store) Due(key Key) bool {
	f, failed := s.Failure(key)
	return !failed || f.due(time.Now())
}
