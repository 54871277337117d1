package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/standalone/spec"
	"github.com/katabox/katabox/standalone/store"
)

// writeFiles writes the files with the container's name and its name server, and
// mounts them over the image's.
func (c *Container) writeFiles(_ context.Context, o *Options) error {
	name := o.Spec.Hostname
	if name == "" {
		name = c.Name
	}
	files := map[string]string{
		"hostname": name + "\n",
		"hosts":    "127.0.0.1\tlocalhost " + name + "\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	}
	if c.net != nil {
		files["resolv.conf"] = "nameserver " + c.net.Resolver + "\n"
	}
	dir := filepath.Join(c.dir, "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make container's files: %w", err)
	}
	var mounts []specs.Mount
	for _, file := range []string{"hostname", "hosts", "resolv.conf"} {
		content, ok := files[file]
		if !ok {
			continue
		}
		path := filepath.Join(dir, file)
		// The umask may remove bits of a new file's mode: all users read it.
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, 0o644)); err != nil {
			return fmt.Errorf("make container's files: %w", err)
		}
		mounts = append(mounts, specs.Mount{Type: "bind", Source: path, Destination: "/etc/" + file, Options: []string{"bind", "rprivate", "rw"}})
	}
	// The user's mounts come later, and so may hide these.
	o.Spec.Mounts = append(mounts, o.Spec.Mounts...)
	return nil
}

// writeSpec writes the bundle's specification.
func (c *Container) writeSpec(ctx context.Context, o *Options) error {
	o.Spec.ID = c.Name
	var s *specs.Spec
	err := c.m.Store.View(ctx, c.img, func(root string) (err error) {
		if err := c.addVolumes(root, o); err != nil {
			return err
		}
		s, err = spec.New(ctx, root, c.img.Config, o.Spec)
		return err
	})
	if err != nil {
		return err
	}
	c.record.Command = s.Process.Args
	if err := store.WriteJSON(filepath.Join(c.dir, specFile), s); err != nil {
		return err
	}
	return c.m.write(c.record)
}
