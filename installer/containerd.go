package installer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	containerdDropIn = "/etc/containerd/conf.d/50-katabox.toml"
)

// The tables of containerd's configuration with the runtime handlers, by the
// version of the file. Version 4 changed only other tables.
const (
	handlersV2 = `plugins."io.containerd.grpc.v1.cri".containerd.runtimes`
	handlersV3 = `plugins."io.containerd.cri.v1.runtime".containerd.runtimes`
)

// mainFile has the parts of containerd's configuration that the installer reads.
type mainFile struct {
	Version int            `toml:"version"`
	Imports []string       `toml:"imports"`
	Plugins map[string]any `toml:"plugins"`
	// Disabled are plugins that containerd does not load: "cri", which version 1
	// calls it and Docker's package disables, or names like its tables'.
	Disabled []string `toml:"disabled_plugins"`
}

// containerd is the engine containerd.
type containerd struct {
	node    node
	handler string
	run     runner
}

func (containerd) name() string { return "containerd" }

// serves reports whether the main file leaves the CRI plugin enabled, or cannot be
// read.
func (c containerd) serves() bool {
	text, err := c.node.read(containerdConfig)
	var main mainFile
	if err != nil || toml.Unmarshal(text, &main) != nil {
		return true
	}
	return !slices.ContainsFunc(main.Disabled, func(plugin string) bool {
		return plugin == "cri" || strings.HasPrefix(plugin, "io.containerd.") && strings.Contains(plugin, ".cri")
	})
}

// plan returns the files to be written.
//
// A drop-in is for containerd 2.x, which merges imports key by key. In 1.6 and
// 1.7 an import replaces everything in the main file about the same plugin
// (services/server/config/config.go, mergeConfig), which for CRI is the pause
// image, the cgroup driver and the other handlers: there the handler goes into a
// block of the main file. It also goes there if the main file has imports that do
// not cover the drop-in. Only 2.x reads files of version 3 and later.
func (c containerd) plan(ctx context.Context) (plan, error) {
	text, err := c.node.read(containerdConfig)
	if err != nil {
		return nil, err
	}
	rest, gone, err := withoutBlock(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	if text == nil || gone {
		version := c.freshVersion(ctx)
		lines := fmt.Sprintf("version = %d\n%s", version, c.table(version))
		return plan{{containerdDropIn, nil}, {containerdConfig, withBlock(nil, asFile, lines)}}, nil
	}
	var main mainFile
	if err := toml.Unmarshal(rest, &main); err != nil {
		return nil, fmt.Errorf("read %s: %w", containerdConfig, err)
	}
	return c.planFor(rest, main)
}

func (c containerd) planFor(text []byte, main mainFile) (plan, error) {
	if main.Version < 2 {
		return nil, fmt.Errorf("%s is of version 1, which containerd 2.x does not read: "+
			"convert it with \"containerd config migrate\" first", containerdConfig)
	}
	if main.has(c.handler) {
		return nil, fmt.Errorf("%s has a runtime handler %s already: remove it, or choose another name with --handler",
			containerdConfig, c.handler)
	}
	dropIn := fmt.Appendf(nil, "version = %d\n%s", main.Version, c.table(main.Version))
	switch {
	case main.Version >= 3 && main.imports(containerdDropIn):
		return plan{{containerdDropIn, dropIn}, {containerdConfig, text}}, nil
	case main.Version >= 3 && main.Imports == nil:
		lines := fmt.Sprintf("imports = [%q]\n", containerdDropIn)
		return plan{{containerdDropIn, dropIn}, {containerdConfig, withBlock(text, atStart, lines)}}, nil
	default:
		return plan{{containerdDropIn, nil}, {containerdConfig, withBlock(text, atEnd, c.table(main.Version))}}, nil
	}
}

// unplan returns the files without the handler.
func (c containerd) unplan() (plan, error) {
	text, err := c.node.read(containerdConfig)
	if err != nil {
		return nil, err
	}
	rest, gone, err := withoutBlock(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	if gone {
		rest = nil
	}
	// The main file is changed first: importing a missing file is an error.
	return plan{{containerdConfig, rest}, {containerdDropIn, nil}}, nil
}

// table returns the handler's table, for a file of that version. containerd 1.6 does
// not know that all devices may be allowed, and ignores it.
func (c containerd) table(version int) string {
	handlers := handlersV3
	if version < 3 {
		handlers = handlersV2
	}
	return fmt.Sprintf("[%s.%s]\n  runtime_type = \"io.containerd.kata.v2\"\n  runtime_path = %q\n"+
		"  privileged_without_host_devices = true\n  privileged_without_host_devices_all_devices_allowed = true\n  pod_annotations = [\"io.katacontainers.*\"]\n", handlers, c.handler, ShimPath)
}

// freshVersion returns the version of a new file on a node without one: the
// program's own, or the one that all releases read.
func (c containerd) freshVersion(ctx context.Context) int {
	out, err := c.run(ctx, "containerd", "--version")
	if err == nil && containerdTwo.Match(out) {
		return 3
	}
	return 2
}

// has reports whether the file itself defines a handler.
func (m mainFile) has(handler string) bool {
	for _, plugin := range []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
		if handlerOf(m.Plugins, plugin, handler) != nil {
			return true
		}
	}
	return false
}

// handlerOf returns a handler's table, or nil if there is none.
func handlerOf(plugins map[string]any, plugin, handler string) map[string]any {
	table := plugins
	for _, key := range []string{plugin, "containerd", "runtimes", handler} {
		table, _ = table[key].(map[string]any)
	}
	return table
}

// imports reports whether the file imports another, with the list interpreted as
// containerd does: patterns, relative to the file's directory.
func (m mainFile) imports(name string) bool {
	for _, pattern := range m.Imports {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(containerdConfig), pattern)
		}
		matched, err := filepath.Match(filepath.Clean(pattern), name)
		if err == nil && matched && (strings.Contains(pattern, "*") || pattern == name) {
			return true
		}
	}
	return false
}
