package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/katabox/katabox/guest-image/internal/initramfs"
)

// libraryDirs are where this host and its dynamic linker have shared libraries,
// and below which the guest's finds them again: on Debian, and on others.
var libraryDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}

// extensionGlobs match iptables' extensions in a library directory; those of
// arptables and ebtables are left out.
var extensionGlobs = []string{"xtables/libxt_*.so", "xtables/libipt_*.so", "xtables/libip6t_*.so"}

// iptablesNames are what the program is called as.
var iptablesNames = []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"}

// iptablesTools are this host's iptables with all that it loads; an image has none
// by default.
type iptablesTools struct {
	// program is the base name of the one program that does everything.
	program string
	// files are by their paths in the image.
	files map[string][]byte
}

// readIPTables reads the iptables at path: xtables-nft-multi or
// xtables-legacy-multi, or a link to it. An empty path is for none.
func readIPTables(path string) (iptablesTools, error) {
	if path == "" {
		return iptablesTools{}, nil
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return iptablesTools{}, fmt.Errorf("find iptables: %w: install iptables, or name one with -iptables", err)
	}
	t := iptablesTools{program: filepath.Base(file), files: map[string][]byte{}}
	if !strings.HasPrefix(t.program, "xtables-") {
		return iptablesTools{}, fmt.Errorf("read iptables %s: it is %s, want xtables-nft-multi or xtables-legacy-multi", path, file)
	}
	if err := t.add("/usr/sbin/"+t.program, file); err != nil {
		return iptablesTools{}, fmt.Errorf("read iptables %s: %w", path, err)
	}
	if err := t.addExtensions(); err != nil {
		return iptablesTools{}, fmt.Errorf("read iptables %s: %w", path, err)
	}
	return t, nil
}

// add adds a file of this host to the image at path, and what it is linked with.
func (t *iptablesTools) add(path, file string) error {
	if _, ok := t.files[path]; ok {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("read %s: built for %v, the guest is x86-64", file, f.Machine)
	}
	t.files[path] = data
	if err := t.addLinker(f); err != nil {
		return err
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, name := range libraries {
		library, err := findLibrary(name)
		if err == nil {
			err = t.add(library, library)
		}
		if err != nil {
			return fmt.Errorf("read what %s needs: %w", file, err)
		}
	}
	return nil
}

// addLinker adds the dynamic linker that a program names.
func (t *iptablesTools) addLinker(f *elf.File) error {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return fmt.Errorf("read the dynamic linker's name: %w", err)
		}
		path := string(bytes.TrimRight(name, "\x00"))
		return t.add(path, path)
	}
	return nil
}

func (t *iptablesTools) addExtensions() error {
	found := 0
	for _, dir := range libraryDirs {
		for _, glob := range extensionGlobs {
			paths, err := filepath.Glob(filepath.Join(dir, glob))
			if err != nil {
				return err
			}
			for _, path := range paths {
				if err := t.add(path, path); err != nil {
					return err
				}
			}
			found += len(paths)
		}
	}
	if found == 0 {
		return fmt.Errorf("no extensions (xtables/libxt_*.so) in %s: install iptables", strings.Join(libraryDirs, ", "))
	}
	return nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("no %s in %s", name, strings.Join(libraryDirs, ", "))
}

// addFiles adds the files, and the program's names.
func (t iptablesTools) addFiles(tree *initramfs.Tree) error {
	if t.program == "" {
		return nil
	}
	for path, data := range t.files {
		if err := tree.File(path, 0o755, data); err != nil {
			return err
		}
	}
	for _, name := range iptablesNames {
		if err := tree.Symlink("usr/sbin/"+name, t.program); err != nil {
			return err
		}
	}
	return nil
}

// sum is a SHA-256 of everything, or "" if there is nothing.
func (t iptablesTools) sum() string {
	if t.program == "" {
		return ""
	}
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		fmt.Fprintf(h, "%q %d\n", path, len(t.files[path]))
		h.Write(t.files[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}
