package installer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// file is one file of a build.
type file struct {
	// name is its path below a version's directory.
	name string
	// from is where this process finds it.
	from string
	mode fs.FileMode
}

const (
	shimName = "containerd-shim-kata-v2"
	toolName = "kata-runtime"
)

// files lists the files of a build in the directory from, as "make install" lays
// it out: bin and share below it, or, as with a PREFIX of /usr/local, share
// beside it.
func files(from string) ([]file, error) {
	list := []file{
		{name: "bin/" + shimName, mode: 0o755},
		{name: "bin/" + toolName, mode: 0o755},
		{name: "share/kata-containers/vmlinux", mode: 0o644},
		{name: "share/kata-containers/initrd.img", mode: 0o644},
		{name: buildConfig, mode: 0o644},
	}
	for i, f := range list {
		path, err := find(f.name, from, filepath.Dir(from))
		if err != nil {
			return nil, err
		}
		if path == "" {
			return nil, fmt.Errorf("find %s below %s: name the directory of an installation with --from", f.name, from)
		}
		list[i].from = path
	}
	for _, name := range help {
		path, err := find(name, from, filepath.Dir(from))
		if err != nil {
			return nil, err
		}
		if path != "" {
			list = append(list, file{name: name, from: path, mode: 0o644})
		}
	}
	return list, nil
}

// source returns where this process finds the file called name of a build.
func source(list []file, name string) string {
	i := slices.IndexFunc(list, func(f file) bool { return f.name == name })
	if i < 0 {
		return ""
	}
	return list[i].from
}

// help are the manual page, which packages compress, and the scripts that
// complete commands in shells. A build need not have them.
var help = []string{
	"share/man/man8/kata-runtime.8", "share/man/man8/kata-runtime.8.gz",
	"share/bash-completion/completions/kata-runtime", "share/zsh/site-functions/_kata-runtime", "share/fish/vendor_completions.d/kata-runtime.fish",
}

// find returns the path of the first file called name in the directories, or "".
func find(name string, dirs ...string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() {
			return path, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", nil
}

// unsafe matches characters that the name of a directory should not have.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9.+~-]+`)

// versionName returns the directory name of a build: the same files have the same
// name.
func versionName(version string, list []file) (string, error) {
	sum := sha256.New()
	for _, f := range list {
		in, err := os.Open(f.from)
		if err != nil {
			return "", err
		}
		each := sha256.New()
		_, err = io.Copy(each, in)
		if err := errors.Join(err, in.Close()); err != nil {
			return "", fmt.Errorf("read %s: %w", f.from, err)
		}
		fmt.Fprintf(sum, "%s %o %x\n", f.name, f.mode, each.Sum(nil))
	}
	return unsafe.ReplaceAllString(version, "_") + "-" + hex.EncodeToString(sum.Sum(nil))[:12], nil
}
