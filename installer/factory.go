package installer

import "fmt"

// Factory has what the installer must know of machines that wait for a pod: spares,
// which run, and templates, which take the node's memory. Both functions are given a
// configuration file by its path for this process; it may be invalid.
type Factory struct {
	// Spares returns the processes that Destroy ends, by the pids that the node gives
	// them: those of the node's spares, and one that makes a template.
	Spares func(file string, on Node) ([]int, error)
	// Destroy ends the spares and removes the configuration's templates. Its error
	// names what it could not remove. The notice, empty for none, says what stays
	// although it has not failed.
	Destroy func(file string, on Node) (notice string, err error)
}

// spares returns the processes that destroyFactory will end; none if it does not matter.
func (o *Options) spares() ([]int, error) {
	file := o.node().configFile()
	if o.Factory.Spares == nil || file == "" || o.Force {
		return nil, nil
	}
	return o.Factory.Spares(file, o.view())
}

// destroyFactory removes templates and spares. The handler is removed first, because pods
// make them again; with Restart "never" pods can start until the engine restarts.
func (o *Options) destroyFactory() error {
	n := o.node()
	file := n.configFile()
	if o.Factory.Destroy == nil || file == "" || !n.exists(Home) {
		return nil
	}
	notice, err := o.Factory.Destroy(file, o.view())
	if notice != "" {
		o.say("%s", notice)
	}
	if err != nil && o.Force {
		o.say("spares or templates are left: %v", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove templates and spares: %w: or uninstall with --force, which leaves them", err)
	}
	return nil
}

// configFile returns the path by which this process reaches the configuration of the
// node's pods, or "" if there is none.
func (n node) configFile() string {
	for _, name := range []string{ownConfig, current + "/" + buildConfig} {
		if path, err := n.path(name); err == nil && n.exists(name) {
			return path
		}
	}
	return ""
}

func (o *Options) view() Node { return Node{Run: o.run, Path: o.node().path} }
