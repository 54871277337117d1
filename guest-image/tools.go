package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/katabox/katabox/guest-image/internal/initramfs"
)

// tools are programs beside the agent; an image has none by default.
type tools struct {
	debug    debugTools
	iptables iptablesTools
}

// readTools reads the programs that the flags name.
func readTools(ctx context.Context, opts options) (t tools, err error) {
	if t.debug, err = readBusybox(ctx, opts.busybox); err != nil {
		return tools{}, err
	}
	t.iptables, err = readIPTables(opts.iptables)
	return t, err
}

// addFiles adds the programs.
func (t tools) addFiles(tree *initramfs.Tree) error {
	if err := t.debug.addFiles(tree); err != nil {
		return err
	}
	return t.iptables.addFiles(tree)
}

// debugTools are programs for who debugs a guest from within.
type debugTools struct {
	busybox []byte
	// applets are what busybox does, each by its name.
	applets []string
}

// readBusybox reads a static busybox and asks it what it does. An empty path is for
// no tools.
func readBusybox(ctx context.Context, path string) (debugTools, error) {
	if path == "" {
		return debugTools{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return debugTools{}, fmt.Errorf("read busybox: %w: install busybox-static, or name one with -busybox", err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return debugTools{}, fmt.Errorf("read busybox %s: %w", path, err)
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return debugTools{}, fmt.Errorf("read busybox %s: it is dynamically linked, want a static one: install busybox-static", path)
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return debugTools{}, fmt.Errorf("list what busybox %s does: %w", path, err)
	}
	return debugTools{busybox: data, applets: strings.Fields(string(list))}, nil
}

// addFiles adds busybox and a link to it for each applet.
func (d debugTools) addFiles(tree *initramfs.Tree) error {
	if d.busybox == nil {
		return nil
	}
	if err := tree.File("bin/busybox", 0o755, d.busybox); err != nil {
		return err
	}
	for _, name := range d.applets {
		if name == "busybox" {
			continue
		}
		if err := tree.Symlink("bin/"+name, "busybox"); err != nil {
			return err
		}
	}
	return nil
}
