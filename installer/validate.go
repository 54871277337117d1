package installer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"

	"github.com/pelletier/go-toml/v2"
)

// containerdTwo matches the output of "containerd --version" of 2.x and later.
var containerdTwo = regexp.MustCompile(`\sv?([2-9]|[1-9][0-9]+)\.[0-9]+\.`)

// Names of the new files while containerd checks them: beside the real ones,
// because imports are relative.
const (
	trialConfig = "/etc/containerd/config.toml.katabox-trial"
	trialMain   = "/etc/containerd/main.katabox-trial"
	trialDropIn = "/etc/containerd/50-katabox.katabox-trial"
)

// validate has the node's own containerd read the files of the plan. If that is
// not possible it returns a notice, not an error: the files were parsed anyway.
func (c containerd) validate(ctx context.Context, p plan) (notice string, err error) {
	for _, f := range p {
		var parsed map[string]any
		if err := toml.Unmarshal(f.data, &parsed); err != nil {
			return "", fmt.Errorf("%s would no longer be valid TOML: %w", f.name, err)
		}
	}
	if !c.node.exists(path.Dir(containerdConfig)) {
		return "", nil // the node has no configuration that could conflict
	}
	if _, err := c.run(ctx, "containerd", "--version"); err != nil {
		return "the node's containerd cannot be run, its configuration was only parsed: " + err.Error(), nil
	}
	defer func() { err = errors.Join(err, c.removeTrial()) }()
	if err := c.writeTrial(p); err != nil {
		return "", err
	}
	out, err := c.run(ctx, "containerd", "--config", trialConfig, "config", "dump")
	if err != nil {
		return "", fmt.Errorf("containerd does not accept the configuration with the handler %s, nothing was changed: %w", c.handler, err)
	}
	return "", c.checkDump(out)
}

// writeTrial writes the files of a plan under temporary names.
func (c containerd) writeTrial(p plan) error {
	main, dropIn := p.get(containerdConfig), p.get(containerdDropIn)
	trial := plan{{trialConfig, main}}
	switch {
	case dropIn == nil:
	case bytes.Contains(main, []byte(containerdDropIn)):
		main = bytes.ReplaceAll(main, []byte(containerdDropIn), []byte(trialDropIn))
		trial = plan{{trialDropIn, dropIn}, {trialConfig, main}}
	default: // imported by a pattern, which the temporary name does not match
		both := fmt.Appendf(nil, "version = 3\nimports = [%q, %q]\n", trialMain, trialDropIn)
		trial = plan{{trialDropIn, dropIn}, {trialMain, main}, {trialConfig, both}}
	}
	for _, f := range trial {
		if _, err := c.node.write(f.name, f.data); err != nil {
			return err
		}
	}
	return nil
}

func (c containerd) removeTrial() error {
	var errs []error
	for _, name := range []string{trialConfig, trialMain, trialDropIn} {
		for _, name := range []string{name, name + newSuffix} {
			_, err := c.node.remove(name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkDump checks for the handler in the configuration that containerd dumps.
func (c containerd) checkDump(dump []byte) error {
	var all mainFile
	if err := toml.Unmarshal(dump, &all); err != nil {
		return fmt.Errorf("read what \"containerd config dump\" wrote: %w", err)
	}
	plugin := "io.containerd.cri.v1.runtime"
	if all.Version < 3 {
		plugin = "io.containerd.grpc.v1.cri"
	}
	if got := handlerOf(all.Plugins, plugin, c.handler)["runtime_path"]; got != ShimPath {
		return fmt.Errorf("containerd would ignore the handler %s (runtime_path is %v), nothing was changed: "+
			"correct the imports in %s", c.handler, got, containerdConfig)
	}
	return nil
}
