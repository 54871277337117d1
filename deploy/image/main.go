package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/katabox/katabox/deploy/image/pack"
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
	img, err := makeImage(files, *version)
	if err != nil {
		return err
	}
	if err := writeLayout(*out, img, *name, *version); err != nil {
		return err
	}
	fmt.Printf("%s:%s: %s.tar\n", *name, *version, *out)
	return nil
}

// scriptTimeout bounds a run of the program that is packed.
const scriptTimeout = time.Minute

// contents returns the image's files, in the order in which they are packed.
func contents(root string) ([]pack.File, error) {
	var files []pack.File
	for _, f := range []struct {
		name, from string
		mode       int64
	}{
		{"bin/containerd-shim-kata-v2", "bin/containerd-shim-kata-v2", 0o755},
		{"bin/kata-runtime", "bin/kata-runtime", 0o755},
		{"share/defaults/kata-containers/configuration.toml", "configuration.toml", 0o644},
		{"share/doc/katabox/LICENSE", "LICENSE", 0o644},
		{"share/kata-containers/initrd.img", "build/guest/initrd.img", 0o644},
		{"share/kata-containers/vmlinux", "build/guest/vmlinux", 0o644},
		{"share/man/man8/kata-runtime.8", "docs/man/kata-runtime.8", 0o644},
	} {
		data, err := os.ReadFile(filepath.Join(root, f.from))
		if err != nil {
			return nil, fmt.Errorf("%w: run make build guest-image", err)
		}
		files = append(files, pack.File{Path: "opt/kata/" + f.name, Mode: f.mode, Data: data})
	}
	return addCompletion(root, files)
}

// addCompletion adds the scripts with which shells complete kata-runtime's
// commands: it writes them itself.
func addCompletion(root string, files []pack.File) ([]pack.File, error) {
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
		files = append(files, pack.File{Path: "opt/kata/share/" + script.name, Mode: 0o644, Data: data})
	}
	slices.SortFunc(files, func(a, b pack.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}
