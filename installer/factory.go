package installer

import "fmt"

// Factory has what the installer must know of machines that wait for a pod: spares,
// which run, and templates, which take the node's memory.
type Factory struct {
	// Spares returns the processes of the node's spares, by the pids that the node
	// gives them.
	Spares func(on Node) ([]int, error)
	// Destroy ends the spares and removes the templates of a configuration file,
	// whose path is for this process. Its error names what it could not remove.
	Destroy func(file string, on Node) error
}

// spares returns the processes that destroyFactory will end.
func (o *Options) spares() ([]int, error) {
	if o.Factory.Spares == nil || o.node().configFile() == "" {
		return nil, nil
	}
	return o.Factory.Spares(o.view())
}

// destroyFactory removes what only this program could remove. No more pods can start
// at that time, which would make it again.
func (o *Options) destroyFactory() error {
	n := o.node()
	file := n.configFile()
	if o.Factory.Destroy == nil || file == "" || !n.exists(Home) {
		return nil
	}
	err := o.Factory.Destroy(file, o.view())
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
