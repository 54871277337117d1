package factory

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/internal/regular"
)

// Place is where a template is made.
type Place struct {
	// Dir takes MemoryFile and StateFile, and nothing else. It may be owned by
	// a VMM's user.
	Dir string
	// Scratch is for anything else that the maker needs. The maker may create
	// it; it is removed when the making ends, however that ends.
	Scratch string
}

// Job is a template to be made.
type Job struct {
	Inputs Inputs
	// Config is the configuration file that requests it. Once the template
	// exists, the file's other templates are removed: nothing starts from them
	// any more.
	Config string
	// Lock is held by the caller; if nil, Make takes it.
	Lock *Lock
	// Wanted is the key that a pod has missed. A template of another key is not made:
	// it would be made for every such pod, and in place of the one that others use. If
	// empty, any key is.
	Wanted Key
}

// Make makes a template by fill. One maker works at a time: another one fails
// with errdefs.ErrUnavailable. If the template already exists, fill is not
// called. Leftovers of makers that died, and templates whose inputs have
// changed, are removed. A failure of fill is recorded (Fail), unless ctx was
// canceled.
func (s Store) Make(ctx context.Context, job Job, fill func(context.Context, Place) error) (Key, error) {
	key, err := KeyOf(job.Inputs)
	if err != nil {
		return "", err
	}
	if job.Wanted != "" && key != job.Wanted {
		err := fmt.Errorf("make template: the maker's would be %s, the pod wants %s (the configuration, or the host, has changed since the pod's start?): %w",
			key, job.Wanted, errdefs.ErrFailedPrecondition)
		return "", errors.Join(err, s.Fail(job.Wanted, err))
	}
	if job.Lock == nil {
		if job.Lock, err = s.Lock(); err != nil {
			return "", fmt.Errorf("make template: %w", err)
		}
		defer job.Lock.Close()
	}
	if err := errors.Join(job.Lock.Sign(), s.tidy()); err != nil {
		return "", fmt.Errorf("make template: %w", err)
	}
	if err := s.makeMissing(ctx, key, job, fill); err != nil {
		return "", fmt.Errorf("make template: %w", err)
	}
	if err := s.removeOthers(key, job.Config); err != nil {
		return "", err
	}
	return key, nil
}

// makeMissing makes a template, unless it exists and can be opened.
func (s Store) makeMissing(ctx context.Context, key Key, job Job, fill func(context.Context, Place) error) error {
	t, err := s.Open(key)
	if err == nil {
		return t.Close()
	}
	if !errdefs.IsNotFound(err) {
		if err := s.Remove(key); err != nil {
			return err
		}
	}
	err = s.make(ctx, key, job, fill)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = errors.Join(err, s.Fail(key, err))
	}
	return err
}

func (s Store) make(ctx context.Context, key Key, job Job, fill func(context.Context, Place) error) error {
	making := filepath.Join(s.Dir, makingPrefix+rand.Text()[:8])
	place := Place{Dir: filepath.Join(making, "template"), Scratch: filepath.Join(making, "scratch")}
	err := os.MkdirAll(place.Dir, 0o700)
	if err == nil {
		err = fill(ctx, place)
	}
	if err == nil {
		err = thin(ctx, filepath.Join(place.Dir, MemoryFile))
	}
	if err == nil {
		err = seal(place.Dir, record{Key: key, Created: time.Now().UTC().Truncate(time.Second), Config: job.Config, Inputs: job.Inputs})
	}
	if err == nil {
		err = os.Rename(place.Dir, filepath.Join(s.Dir, string(key)))
	}
	return errors.Join(err, os.RemoveAll(making))
}

// removeOthers removes the templates of other keys of a configuration file.
func (s Store) removeOthers(key Key, config string) error {
	list, err := s.List()
	errs := []error{err}
	for _, i := range list {
		if i.Key != key && i.Config == config {
			errs = append(errs, s.Remove(i.Key))
		}
	}
	return errors.Join(errs...)
}

// thin gives back the memory's pages of zeros, a tenth of it, so that less is
// copied. On a file system that has no holes they stay.
func thin(ctx context.Context, path string) error {
	file, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	// The same file, whatever its name means by now.
	writable, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err = memfile.Thin(ctx, writable); errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	return errors.Join(err, writable.Close())
}

// seal makes fill's files readable by root alone, and writes the record: from
// here on no VMM can write to the files.
func seal(dir string, rec record) error {
	if err := errors.Join(os.Chown(dir, os.Geteuid(), os.Getegid()), os.Chmod(dir, 0o700)); err != nil {
		return err
	}
	for name, sum := range map[string]func(*os.File) error{
		MemoryFile: func(f *os.File) (err error) { rec.MemorySum, err = memfile.Sum(f); return },
		StateFile:  func(f *os.File) (err error) { rec.StateSum, err = stateSum(f); return },
	} {
		f, err := regular.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		err = errors.Join(f.Chown(os.Geteuid(), os.Getegid()), f.Chmod(0o400), sum(f), f.Close())
		if err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(rec, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, infoFile), text, 0o400)
}
