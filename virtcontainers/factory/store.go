package factory

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/regular"
)

// The files in a template's directory.
const (
	MemoryFile = "memory"
	StateFile  = "state"
	infoFile   = "template.json"

	lockFile     = "lock"
	makingPrefix = "making-"
)

// maxInfo and maxState bound what is read of a template into memory, in bytes.
// A state takes some 150 KB.
const maxInfo, maxState = 1 << 20, 64 << 20

// Store is the directory of templates, which need not exist yet.
type Store struct{ Dir string }

// Info describes a template.
type Info struct {
	Key     Key
	Created time.Time
	// Used is when it was last opened, or made.
	Used time.Time
	// Bytes is the space that it takes in the file system.
	Bytes int64
	// Current is false if what it was made of has changed: nothing starts from it any
	// more.
	Current bool
	// Config is the configuration file that it was made for; empty for none.
	Config string
	// Keeper is the process that keeps its memory between pods (Keep); 0 for none.
	Keeper int
}

// record is infoFile.
type record struct {
	Key       Key
	Created   time.Time
	StateSum  string // SHA-256
	MemorySum uint32 // memfile.Sum
	Config    string
	Inputs    Inputs
}

// Template is an open template.
type Template struct {
	Memory, State *os.File
	// MemorySum is memfile.Sum of Memory.
	MemorySum uint32
}

// Close closes its files.
func (t *Template) Close() error { return errors.Join(t.Memory.Close(), t.State.Close()) }

// Open opens a template, which counts as its use. It fails with errdefs.ErrNotFound if there is none,
// and with another error if the template cannot be used: Remove it then. The
// memory is checked when it is copied.
func (s Store) Open(key Key) (*Template, error) {
	dir := filepath.Join(s.Dir, string(key))
	t, err := openIn(dir, key)
	if err != nil && !exists(dir) { // there was none, or it has just been removed
		return nil, fmt.Errorf("template %s: %w", key, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open template %s: %w", key, err)
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, infoFile), now, now) // it may expire sooner
	return t, nil
}

// openIn opens the template in a directory.
func openIn(dir string, key Key) (*Template, error) {
	rec, err := readRecord(dir)
	if err != nil {
		return nil, err
	}
	if rec.Key != key {
		return nil, fmt.Errorf("it is of %s", rec.Key)
	}
	t := &Template{MemorySum: rec.MemorySum}
	if t.State, err = openState(filepath.Join(dir, StateFile), rec.StateSum); err != nil {
		return nil, err
	}
	if t.Memory, err = regular.Open(filepath.Join(dir, MemoryFile)); err != nil {
		return nil, errors.Join(err, t.State.Close())
	}
	return t, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func readRecord(dir string) (record, error) {
	f, err := regular.Open(filepath.Join(dir, infoFile))
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	text, err := readUpTo(f, maxInfo)
	if err != nil {
		return record{}, err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return record{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return rec, nil
}

// openState opens the state, at its start, and compares its checksum.
func openState(path, want string) (*os.File, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	sum, err := stateSum(f)
	if err == nil && sum != want {
		err = fmt.Errorf("%s is damaged: its checksum is not %s", path, want)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func stateSum(f *os.File) (string, error) {
	state, err := readUpTo(f, maxState)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:]), nil
}

// prepare makes the directory. One that others could write to would let them
// choose what runs in sandboxes. One that is there already keeps its mode, because it may
// be shared: what a store has in it is root's alone in any case.
func (s Store) prepare() error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(s.Dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: s.Dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s (factory.template_path) is not a directory that only this user can write to: %w", s.Dir, errdefs.ErrFailedPrecondition)
	}
	if st.Mode&0o077 == 0 {
		return nil
	}
	return s.checkOwn()
}

// checkOwn refuses a directory that has something else than templates in it.
func (s Store) checkOwn() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isOwn(e.Name()) {
			return fmt.Errorf("%s (factory.template_path) has other files, such as %s, and other users may enter it: set factory.template_path to a directory for templates alone: %w",
				s.Dir, e.Name(), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// isOwn reports whether a name is of what a store has in its directory, or of what every
// new file system has.
func isOwn(name string) bool {
	return name == lockFile || strings.HasPrefix(name, makingPrefix) || strings.HasPrefix(name, failedPrefix) || isKey(name) || name == "lost+found"
}

// tidy removes what is no longer of use; the caller has the lock.
func (s Store) tidy() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		old := strings.HasPrefix(e.Name(), makingPrefix)
		if key, failed := strings.CutPrefix(e.Name(), failedPrefix); failed {
			f, ok := s.Failure(Key(key))
			old = !ok || time.Since(f.At) > forgetAfter
		}
		if old {
			dir := filepath.Join(s.Dir, e.Name())
			// Of a template whose removal was killed, or is under way.
			errs = append(errs, endKeeper(filepath.Join(dir, lendersDir)), os.RemoveAll(dir))
		}
	}
	infos, err := s.List()
	errs = append(errs, err)
	for _, i := range infos {
		if !i.Current {
			errs = append(errs, s.Remove(i.Key))
		}
	}
	return errors.Join(errs...)
}

// List lists the templates by their keys. One that cannot be read is not current.
func (s Store) List() ([]Info, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var list []Info
	for _, e := range entries {
		if !isKey(e.Name()) {
			continue
		}
		list = append(list, s.info(Key(e.Name())))
	}
	return list, nil
}

// info describes a template, as far as it can be read.
func (s Store) info(key Key) Info {
	dir, i := filepath.Join(s.Dir, string(key)), Info{Key: key}
	if rec, err := readRecord(dir); err == nil {
		i.Created, i.Current, i.Config = rec.Created, rec.Inputs.current(), rec.Config
	}
	if k, ok := keeperIn(filepath.Join(dir, lendersDir)); ok {
		i.Keeper = k.PID
	}
	for _, name := range []string{MemoryFile, StateFile, infoFile} {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, name), &st) != nil {
			continue
		}
		i.Bytes += st.Blocks * 512
		if name == infoFile {
			i.Used = time.Unix(st.Mtim.Unix())
		}
	}
	return i
}

// lives reports whether the template has been used within a time; changed is for one
// that is not current here.
func (i Info) lives(unused, changed time.Duration) bool {
	if !i.Current {
		unused = changed
	}
	return time.Since(i.Used).Abs() <= unused // the clock may have been set back
}

// isKey reports whether name is a template's, not something else in the
// directory.
func isKey(name string) bool {
	text, err := hex.DecodeString(name)
	return err == nil && len(text) == keyBytes
}

// current reports whether the files and the host are still those of the inputs.
func (in Inputs) current() bool {
	for path, was := range in.Files {
		if now, err := fileAt(path); err != nil || now != was {
			return false
		}
	}
	host, err := ThisHost()
	return err == nil && host == in.Host
}

// Remove removes a template, and ends its keeper. Machines that are starting from it are not
// affected. It is no error if there is none. The template is moved aside first: a
// pod, and one after a removal that was killed, finds all of it or none.
func (s Store) Remove(key Key) error {
	if !isKey(string(key)) {
		return fmt.Errorf("remove template %q: not a key: %w", key, errdefs.ErrInvalidArgument)
	}
	aside := filepath.Join(s.Dir, makingPrefix+rand.Text()[:8])
	err := os.Rename(filepath.Join(s.Dir, string(key)), aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(endKeeper(filepath.Join(aside, lendersDir)), os.RemoveAll(aside))
	}
	if err != nil {
		return fmt.Errorf("remove template: %w", err)
	}
	return nil
}

// Expire removes the templates that have not been used for so long, and returns their
// keys; changed is for those that are not current here. They may still be in another
// mount namespace.
func (s Store) Expire(unused, changed time.Duration) ([]Key, error) {
	list, err := s.List()
	errs := []error{err}
	var removed []Key
	for _, i := range list {
		if i.lives(unused, changed) {
			continue
		}
		err := s.Remove(i.Key)
		if errs = append(errs, err); err == nil {
			removed = append(removed, i.Key)
		}
	}
	return removed, errors.Join(errs...)
}

// RemoveAll removes all templates, the recorded failures, and the directory,
// unless something else is in it. It first ends a process that is making a
// template; if that takes more than a few seconds, RemoveAll fails.
func (s Store) RemoveAll() error {
	if !exists(s.Dir) {
		return nil
	}
	lock, err := s.lockOver()
	if err != nil {
		return fmt.Errorf("remove templates: %w", err)
	}
	defer lock.Close()
	list, err := s.List()
	errs := []error{err, s.tidy()}
	for _, i := range list {
		errs = append(errs, s.Remove(i.Key))
	}
	errs = append(errs, s.forget())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.Dir, lockFile)); err != nil {
		return fmt.Errorf("remove templates: %w", err)
	}
	if err := os.Remove(s.Dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove templates: %w", err)
	}
	return nil
}

// Machine returns the template in the form from which a machine is launched,
// with the devices that it was made with.
func (t *Template) Machine(devices ...hypervisor.Device) *hypervisor.Template {
	return &hypervisor.Template{Devices: devices, Memory: t.Memory, State: t.State, MemorySum: t.MemorySum}
}

// readUpTo reads a whole file, which must not be longer than limit.
func readUpTo(f *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", f.Name(), limit)
	}
	return text, err
}
