package images

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/katabox/katabox/deploy/image/pack"
)

// libraryDirs are where Debian keeps a program's shared libraries, and so where
// they go in the image.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"}

// interpreter is the dynamic linker (System V ABI, AMD64 supplement, 5.2).
const interpreter = "/lib64/ld-linux-x86-64.so.2"

// debianProgram returns a program of a Debian package, for path in the image,
// and the libraries it needs, ready for a layer. The program is extracted from
// its package, not installed: an installed nginx would be a service of the
// host, and an installed busybox would replace busybox-static. Its libraries
// are the host's, of the same release.
func debianProgram(ctx context.Context, cache, name, path string) (layer, error) {
	root := filepath.Join(cache, name)
	if _, err := os.Stat(root); err != nil {
		if err := unpackPackage(ctx, cache, name, root); err != nil {
			return nil, err
		}
	}
	program := unpacked(root, path)
	libraries, err := closure(program)
	if err != nil {
		return nil, err
	}
	return readFiles(map[string]string{program: path}, append(libraries, interpreter))
}

// unpacked is where a program of an unpacked package is. Debian 12's packages
// have some below /bin, where those of Debian 13 have /usr/bin.
func unpacked(root, path string) string {
	program := filepath.Join(root, path)
	if _, err := os.Stat(program); err != nil {
		return filepath.Join(root, "usr", path)
	}
	return program
}

// unpackPackage downloads a package and unpacks it into root, which is made
// atomically.
func unpackPackage(ctx context.Context, cache, name, root string) error {
	work, err := os.MkdirTemp(cache, name+"-")
	if err != nil {
		return fmt.Errorf("make work directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	download := func() error { return run(ctx, work, "apt-get", "download", name) }
	if err := download(); err != nil {
		// The machine's package lists may be missing or old.
		if again := run(ctx, work, "apt-get", "update"); again != nil {
			return errors.Join(err, again)
		}
		if err := download(); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(work, name+"_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("download %s: got packages %v, want one", name, packages)
	}
	if err := run(ctx, work, "dpkg-deb", "--extract", packages[0], "root"); err != nil {
		return err
	}
	return os.Rename(filepath.Join(work, "root"), root)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// closure returns the shared libraries that the program needs, and those that
// they need, as paths of the host.
func closure(program string) ([]string, error) {
	var found []string
	for todo := []string{program}; len(todo) > 0; {
		needs, err := neededBy(todo[0])
		if err != nil {
			return nil, err
		}
		todo = todo[1:]
		for _, name := range needs {
			path, err := findLibrary(name)
			if err != nil {
				return nil, fmt.Errorf("%w: %s needs it", err, program)
			}
			if !slices.Contains(found, path) {
				found, todo = append(found, path), append(todo, path)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// neededBy lists the libraries that an ELF file names.
func neededBy(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read libraries of %s: %w", path, err)
	}
	return names, nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find library %s: not in %v", name, libraryDirs)
}

// readFiles reads programs, which get another path, and libraries, which keep
// theirs.
func readFiles(moved map[string]string, kept []string) (layer, error) {
	for _, path := range kept {
		moved[path] = path[1:]
	}
	var files layer
	for from, to := range moved {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("read program or library: %w", err)
		}
		files = append(files, pack.File{Path: to, Mode: 0o755, Data: data})
	}
	slices.SortFunc(files, func(a, b pack.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}
