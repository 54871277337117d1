package modules

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxModule bounds a module that was packed, in bytes. The kernel's largest is
// a few MiB.
const maxModule = 64 << 20

// Loader loads the module in the file at path with parameters as in
// "NAME key=value ...". A module that is loaded already is no error.
type Loader func(path, params string) error

// Load loads the module at a place of the list with its parameters, after all
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

// needs returns the places of all that the module at place needs, through
// others too. What only a soft need leads to is itself soft.
func (l List) needs(place int) map[int]Need {
	wanted := map[int]Need{place: {}}
	for at := place; at >= 0; at-- { // Needs stand before the needy.
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

// LoadFile is the Loader of a running kernel. A path that ends in ".gz" is
// unpacked first: Debian's kernel does not do it (CONFIG_MODULE_COMPRESS_NONE).
func LoadFile(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if strings.HasSuffix(path, ".gz") {
		err = loadPacked(f, params)
	} else {
		err = unix.FinitModule(int(f.Fd()), params, 0)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func loadPacked(r io.Reader, params string) error {
	ko, err := unpack(r, maxModule)
	if err != nil {
		return err
	}
	return unix.InitModule(ko, params)
}

func unpack(r io.Reader, limit int64) ([]byte, error) {
	packed, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("unpack module: %w", err)
	}
	ko, err := io.ReadAll(io.LimitReader(packed, limit+1))
	if err != nil {
		return nil, fmt.Errorf("unpack module: %w", err)
	}
	if int64(len(ko)) > limit {
		return nil, fmt.Errorf("unpack module: more than %d bytes", limit)
	}
	return ko, nil
}
