package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// envFile is the environment variable that names the configuration file when
// the caller names none.
const envFile = "KATA_CONF_FILE"

// defaultFiles are where the configuration is searched when neither the caller
// nor envFile names a file; the first that exists is used.
var defaultFiles = []string{
	"/etc/kata-containers/configuration.toml",
	besideProgram,
	"/usr/share/defaults/kata-containers/configuration.toml",
}

// maxFileSize bounds one file, in bytes.
const maxFileSize = 1 << 20

// Load reads the configuration: the file explicit (containerd's ConfigPath
// option) when it is not empty, else the one that the environment variable
// KATA_CONF_FILE names, else /etc/kata-containers/configuration.toml, else
// ../share/defaults/kata-containers/configuration.toml from this program's
// directory, else /usr/share/defaults/kata-containers/configuration.toml. Without any, the
// result is the built-in defaults and a warning that says so.
//
// If no file names a kernel, it is ../share/kata-containers/vmlinux from this
// program's directory if that exists; the same goes for the initrd.
//
// The *.toml files of the directory config.d beside the file (beside the
// target, if the file is a symbolic link) are merged over it key by key, in
// the order of their names. Those whose names begin with a dot are not read.
//
// An error joins everything that is wrong, one line each, with the file, the
// line, the key, the value and what is wanted. Load blocks only on reading
// these files.
func Load(explicit string) (*Config, error) {
	return thisHost().load(explicit)
}

// Find returns the file that Load reads first, or "" if it uses the built-in
// defaults.
func Find(explicit string) (string, error) { return thisHost().find(explicit) }

// Places returns where Load looks for a file that it is not given, the first place first.
func Places() []string { return thisHost().files }

// host is what Load needs of the machine; tests replace it.
type host struct {
	getenv func(string) string
	files  []string
	cpus   int
	// guest is the directory of the guest beside the program, or "".
	guest string
}

func thisHost() host {
	program, err := os.Executable()
	return host{getenv: os.Getenv, files: usualFiles(program, err), cpus: HostCPUs(), guest: besideGuest(program, err)}
}

func (h host) load(explicit string) (*Config, error) {
	file, err := h.find(explicit)
	if err != nil {
		return nil, err
	}
	var sources []string
	if file != "" {
		if sources, err = withDropIns(file); err != nil {
			return nil, err
		}
	}
	settings, readErr := readAll(sources)
	config, buildErr := build(settings, h.cpus)
	if err := errors.Join(readErr, buildErr); err != nil {
		return nil, err
	}
	config.Source = sources
	h.chooseGuest(config)
	for _, dir := range h.overlooked(explicit, file) {
		config.warnf("the files in %s are ignored: they count beside the configuration file, which is %s", dir, cmp.Or(file, "missing"))
	}
	if file == "" {
		config.warnf("no configuration file (%s): using built-in defaults", strings.Join(h.files, ", "))
	}
	return config, nil
}

// find returns the configuration file with symbolic links resolved, or "" when
// there is none and none was requested.
func (h host) find(explicit string) (string, error) {
	named := h.named(explicit)
	if named != "" {
		return resolveLinks(named)
	}
	for _, candidate := range h.files {
		file, err := resolveLinks(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			if _, link := os.Lstat(candidate); link != nil {
				continue // and not a link whose target is missing
			}
		}
		return file, err
	}
	return "", nil
}

// named returns the file that the caller or the environment names, or "".
func (h host) named(explicit string) string { return cmp.Or(explicit, h.getenv(envFile)) }

func resolveLinks(path string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("find configuration %s: %w", path, err)
	}
	return file, nil
}

// readAll returns the settings of all files that can be read, and an error for
// the others.
func readAll(files []string) ([]setting, error) {
	var (
		all  []setting
		errs []error
	)
	for order, file := range files {
		doc, err := readFile(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("read configuration: %w", err))
			continue
		}
		settings, err := parse(file, order, doc)
		errs = append(errs, err)
		all = append(all, settings...)
	}
	return all, errors.Join(errs...)
}

// readFile reads a regular file of at most maxFileSize bytes. Anything else
// is refused before it is opened: opening a FIFO could block without end.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	doc, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(doc) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFileSize)
	}
	return doc, nil
}
