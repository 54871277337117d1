package harness

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// UseBlockfile makes containerd keep each snapshot as its own file with an
// ext4 in it. Only 2.x can.
func (o *Options) UseBlockfile() {
	o.useSnapshotter("blockfile", func(d *Daemon) (string, error) {
		scratch := filepath.Join(d.Dir, "scratch.ext4")
		// Small: containerd copies it for each layer and each container.
		if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", scratch, "24m").CombinedOutput(); err != nil {
			return "", fmt.Errorf("make scratch file: %w: %s", err, out)
		}
		return fmt.Sprintf("scratch_file = %q\n", scratch), nil
	})
}

// UseErofs makes containerd keep each layer as an erofs image. What a container
// writes goes to a directory, or to a file with an ext4 of a size such as
// "64MiB". Only 2.x can.
func (o *Options) UseErofs(size string) {
	o.useSnapshotter("erofs", func(*Daemon) (string, error) { return fmt.Sprintf("default_size = %q\n", size), nil })
}

// useSnapshotter enables a snapshotter; config is the content of its table.
func (o *Options) useSnapshotter(name string, config func(*Daemon) (string, error)) {
	plugin := "io.containerd.snapshotter.v1." + name
	o.Plugins = append(o.Plugins, plugin)
	before := o.Prepare
	o.Prepare = func(d *Daemon) (string, error) {
		d.Snapshotter = name
		text, err := config(d)
		text = fmt.Sprintf("[plugins.'%s']\n%s", plugin, text)
		if err != nil || before == nil {
			return text, err
		}
		more, err := before(d)
		return text + more, err
	}
}
