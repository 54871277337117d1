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
	// containerdDropIns are all drop-ins. Unlike a name, a pattern may match nothing.
	containerdDropIns = "/etc/containerd/conf.d/*.toml"
)

// The tables of containerd's configuration with the runtime handlers, by the
// version of the file. Version 4 changed only other tables.
const (
	handlersV2 = `plugins."io.containerd.grpc.v1.cri".containerd.runtimes`
	handlersV3 = `plugins."io.containerd.cri.v1.runtime".containerd.runtimes`
)

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
//
// Nothing is to be written if the containerd that starts pods has the handler from
// another file.
func (c containerd) plan(ctx context.Context) (plan, error) {
	if known, err := c.inOtherFile(); known || err != nil {
		return nil, err
	}
	text, err := c.node.read(containerdConfig)
	if err != nil {
		return nil, err
	}
	rest, gone, err := withoutBlock(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	var main, own mainFile
	if err := toml.Unmarshal(rest, &main); err != nil {
		return nil, fmt.Errorf("read %s: %w", containerdConfig, err)
	}
	if err := toml.Unmarshal(blockLines(text), &own); err != nil {
		return nil, fmt.Errorf("read the lines after %q in %s: %w", blockBegin, containerdConfig, err)
	}
	switch {
	case text == nil || gone:
		return c.planAlone(ctx, nil, asFile, own)
	case hasNoKey(rest):
		return c.planAlone(ctx, rest, atEnd, own)
	default:
		return c.planFor(rest, main, own)
	}
}

// planAlone plans for a file that has no key, or does not exist: all keys are the
// block's.
func (c containerd) planAlone(ctx context.Context, text []byte, where place, own mainFile) (plan, error) {
	version := c.freshVersion(ctx)
	lines := fmt.Sprintf("version = %d\n", version)
	if version >= 3 {
		imports, err := c.imports(own)
		if err != nil {
			return nil, err
		}
		imports = slices.DeleteFunc(imports, func(name string) bool { return name == containerdDropIn })
		lines += importLine(imports)
	}
	return plan{{containerdDropIn, nil}, {containerdConfig, withBlock(text, where, lines+c.table(version))}}, nil
}

// planFor plans for a file with keys. own is what the installed block has.
func (c containerd) planFor(text []byte, main, own mainFile) (plan, error) {
	if main.Version < 2 {
		return nil, fmt.Errorf("%s is of version 1 (it does not begin with \"version = 2\" or a later one), to which the installer adds no handler: "+
			"convert it first, with \"containerd config migrate\" of containerd 2.x or by hand", containerdConfig)
	}
	handler := main.handler(c.handler)
	if handler != nil && handler["runtime_path"] != ShimPath {
		return nil, fmt.Errorf("%s has a runtime handler %s already: remove it, or choose another name with --handler",
			containerdConfig, c.handler)
	}
	dropIn := fmt.Appendf(nil, "version = %d\n%s", main.Version, c.table(main.Version))
	switch {
	case main.Version >= 3 && main.imports(containerdDropIn):
		return plan{{containerdDropIn, dropIn}, {containerdConfig, text}}, nil
	case main.Version >= 3 && main.Imports == nil:
		imports, err := c.imports(own)
		return plan{{containerdDropIn, dropIn}, {containerdConfig, withBlock(text, atStart, importLine(imports))}}, err
	case handler != nil: // "containerd config migrate" took it out of the block
		return plan{{containerdDropIn, nil}, {containerdConfig, text}}, nil
	default:
		return plan{{containerdDropIn, nil}, {containerdConfig, withBlock(text, atEnd, c.table(main.Version))}}, nil
	}
}

// imports returns the block's list of imports: what an administrator has added to
// it, and the whole directory of drop-ins, as in containerd 2.x's own default. If
// that would load files that containerd has not read so far, it is the drop-in only.
func (c containerd) imports(own mainFile) ([]string, error) {
	own.Imports = slices.DeleteFunc(own.Imports, func(name string) bool { return name == containerdDropIn })
	if own.imports(containerdDropIn) {
		return own.Imports, nil
	}
	others, err := c.node.list(filepath.Dir(containerdDropIn))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(others, func(name string) bool {
		return strings.HasSuffix(name, ".toml") && name != filepath.Base(containerdDropIn)
	}) {
		return append(own.Imports, containerdDropIn), nil
	}
	return append(own.Imports, containerdDropIns), nil
}

// unplan returns the files without the handler. It is an error if the main file
// would still name what is removed: containerd does not start if it imports a
// missing file.
func (c containerd) unplan() (plan, error) {
	text, err := c.node.read(containerdConfig)
	if err != nil {
		return nil, err
	}
	rest, gone, err := withoutBlock(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	if lines := leftovers(text); len(lines) > 0 {
		return nil, fmt.Errorf("%s names Katabox outside the installer's lines, as after \"containerd config migrate\": "+
			"remove that, and the table of each handler whose runtime_path it is, then uninstall again: %s",
			containerdConfig, strings.Join(lines, "; "))
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
