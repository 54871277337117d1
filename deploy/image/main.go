package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// tagPattern matches a valid tag (distribution-spec 1.1, "Pulling manifests").
var tagPattern = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	root := flags.String("root", ".", "the checkout, with bin and build/guest built")
	out := flags.String("out", "build/image", "where the layout goes; OUT.tar is the same in one file")
	name := flags.String("name", "katabox.local/installer", "the image's name, without a tag")
	version := flags.String("version", "", "the version, which is the tag")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !tagPattern.MatchString(*version) {
		return fmt.Errorf("version %q cannot be a tag: want letters, digits, '.', '_' and '-'", *version)
	}
	files, err := contents(*root)
	if err != nil {
		return err
	}
	blobs, err := makeLayout(files, *name, *version)
	if err != nil {
		return err
	}
	if err := writeDir(*out, blobs); err != nil {
		return err
	}
	archive, err := tarOf(blobs)
	if err != nil {
		return err
	}
	if err := replace(*out+".tar", archive); err != nil {
		return err
	}
	fmt.Printf("%s:%s: %s.tar, %d MiB\n", *name, *version, *out, len(archive)>>20)
	return nil
}

// scriptTimeout bounds a run of the program that is packed.
const scriptTimeout = time.Minute

// contents returns the image's files, in the order in which they are packed.
func contents(root string) ([]file, error) {
	files := []file{
		{name: "opt/kata/bin/containerd-shim-kata-v2", from: "bin/containerd-shim-kata-v2", mode: 0o755},
		{name: "opt/kata/bin/kata-runtime", from: "bin/kata-runtime", mode: 0o755},
		{name: "opt/kata/share/defaults/kata-containers/configuration.toml", from: "configuration.toml", mode: 0o644},
		{name: "opt/kata/share/doc/katabox/LICENSE", from: "LICENSE", mode: 0o644},
		{name: "opt/kata/share/kata-containers/initrd.img", from: "build/guest/initrd.img", mode: 0o644},
		{name: "opt/kata/share/kata-containers/vmlinux", from: "build/guest/vmlinux", mode: 0o644},
		{name: "opt/kata/share/man/man8/kata-runtime.8", from: "docs/man/kata-runtime.8", mode: 0o644},
	}
	for i, f := range files {
		data, err := os.ReadFile(filepath.Join(root, f.from))
		if err != nil {
			return nil, fmt.Errorf("%w: run make build guest-image", err)
		}
		files[i].data = data
	}
	return addCompletion(root, files)
}

// addCompletion adds the scripts with which shells complete kata-runtime's
// commands: it writes them itself.
func addCompletion(root string, files []file) ([]file, error) {
	for _, script := range []struct{ shell, name string }{
		{"bash", "bash-completion/completions/kata-runtime"},
		{"fish", "fish/vendor_completions.d/kata-runtime.fish"},
		{"zsh", "zsh/site-functions/_kata-runtime"},
	} {
		program, err := filepath.Abs(filepath.Join(root, "bin/kata-runtime"))
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
		data, err := exec.CommandContext(ctx, program, "completion", script.shell).Output()
		cancel()
		if err != nil {
			return nil, fmt.Errorf("run kata-runtime completion %s: %w", script.shell, err)
		}
		files = append(files, file{name: "opt/kata/share/" + script.name, mode: 0o644, data: data})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// writeDir writes the layout's files below dir, replacing those of an earlier
// layout.
func writeDir(dir string, files []file) error {
	if err := os.RemoveAll(filepath.Join(dir, "blobs")); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file atomically.
func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		return errors.Join(err, os.Remove(path+".part"))
	}
	return os.Rename(path+".part", path)
}
