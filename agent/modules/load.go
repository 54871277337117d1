package modules

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxModule bounds a module that was compressed, in bytes. The kernel's largest
// is a few MiB.
const maxModule = 64 << 20

// sysModules has a directory for each module (Documentation/ABI/testing/
// sysfs-module).
const sysModules = "/sys/module"

// Loader loads the module in the file at path with parameters as in
// "NAME key=value ...". A module that is already loaded is no error.
type Loader func(path, params string) error

// Load loads the module at an index of the list with its parameters, after all
// that it needs. Loading twice is no error.
func (l List) Load(place int, params string, load Loader) error {
	needs := l.needs(place)
	for at, m := range l[:place] {
		need, ok := needs[at]
		if !ok {
			continue
		}
		if err := load(m.Path, ""); err != nil && !need.Soft {
			return fmt.Errorf("load module %s, which %s needs: %w", m.Name, l[place].Name, err)
		}
	}
	if err := load(l[place].Path, params); err != nil {
		return fmt.Errorf("load module %s: %w", l[place].Name, err)
	}
	return nil
}

// needs returns the indexes of all modules that the one at place needs, also
// indirectly. What is needed only through a soft need is itself soft.
func (l List) needs(place int) map[int]Need {
	wanted := map[int]Need{place: {}}
	for at := place; at >= 0; at-- { // Modules follow those that they need.
		needy, ok := wanted[at]
		if !ok {
			continue
		}
		for _, need := range l[at].Needs {
			i := l.Find(need.Name)
			if i < 0 || i >= at {
				continue
			}
			old, known := wanted[i]
			need.Soft = (need.Soft || needy.Soft) && (old.Soft || !known)
			wanted[i] = need
		}
	}
	return wanted
}

// LoadFile is the Loader of a running kernel. A path like "DIR/FILE.zip/NAME"
// names a module in a zip file: Debian's kernel cannot decompress modules
// (CONFIG_MODULE_COMPRESS_NONE).
func LoadFile(path, params string) error {
	err := loadFile(path, params)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func loadFile(path, params string) error {
	archive, name, packed := strings.Cut(path, ".zip/")
	if packed {
		if live(sysModules, strings.TrimSuffix(name, ".ko")) {
			return nil
		}
		ko, err := unpack(archive+".zip", name, maxModule)
		if err != nil {
			return err
		}
		return unix.InitModule(ko, params)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), params, 0)
}

// live reports whether a module is loaded and initialized (show_initstate in
// kernel/module/main.c). Most needed modules already are, and decompressing
// them only to get EEXIST would take longer than everything else. A module that
// is being loaded is not live; loading it again waits for it.
func live(dir, name string) bool {
	state, err := os.ReadFile(filepath.Join(dir, name, "initstate"))
	return err == nil && string(state) == "live\n"
}

// unpack reads a file in a zip file. A file larger than limit bytes is an
// error.
func unpack(archive, name string, limit uint64) ([]byte, error) {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", archive, err)
	}
	defer r.Close()
	at := slices.IndexFunc(r.File, func(f *zip.File) bool { return f.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("find %s in %s: %w", name, archive, os.ErrNotExist)
	}
	if size := r.File[at].UncompressedSize64; size > limit {
		return nil, fmt.Errorf("unpack %s of %s: %d bytes are above %d", name, archive, size, limit)
	}
	f, err := r.File[at].Open()
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", name, archive, err)
	}
	defer f.Close()
	data, err := io.ReadAll(f) // The checksum is compared at the end of file.
	if err != nil {
		return nil, fmt.Errorf("unpack %s of %s: %w", name, archive, err)
	}
	return data, nil
}
