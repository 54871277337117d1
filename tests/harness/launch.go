package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/image"
)

// envTag is the variable that marks a daemon's descendants.
const envTag = "KATABOX_TEST_TAG"

// launch starts containerd with its output going to LogPath.
func (d *Daemon) launch() error {
	cmd := exec.Command(d.release.Path("containerd"), "--config", d.configPath())
	cmd.Env = append(d.Env(), d.options.Env...)
	cmd.Dir = d.Dir
	var err error
	d.child, err = StartChild(cmd, d.LogPath)
	return err
}

// Restart kills containerd, as a crash would, starts it again with the same
// state and waits until it answers. Client and what was made with it stay
// valid; a pending Wait ends with an error.
func (d *Daemon) Restart(ctx context.Context) error { return d.RestartAfter(ctx, func() {}) }

// RestartAfter is Restart with a call of do while no containerd runs.
func (d *Daemon) RestartAfter(ctx context.Context, do func()) error {
	d.crashed = true
	d.child.Kill()
	do()
	if err := d.launch(); err != nil {
		return err
	}
	old := d.Client
	if err := d.connect(ctx); err != nil {
		return fmt.Errorf("restart containerd: %w", err)
	}
	fresh := d.Client
	d.Client = old // it connects again by itself
	return fresh.Close()
}

// Env returns the environment of containerd and of the related programs: shims
// are found by PATH, the runtime's configuration by KATA_CONF_FILE.
func (d *Daemon) Env() []string {
	path := []string{d.release.Dir, d.options.Layout.Bin(), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	return []string{
		"PATH=" + strings.Join(path, ":"),
		"HOME=" + d.Dir,
		"XDG_RUNTIME_DIR=" + d.Dir, // where it leaves the checkpoints that it has restored
		"CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1",
		"KATA_CONF_FILE=" + d.KataConfigPath(),
		envTag + "=" + d.tag,
	}
}

// connect waits until containerd answers or has ended.
func (d *Daemon) connect(ctx context.Context) error { return d.child.Ready(ctx, d.tryConnect) }

func (d *Daemon) tryConnect(ctx context.Context) error {
	if _, err := os.Stat(d.Socket()); err != nil {
		return err
	}
	c, err := client.New(d.Socket(), client.WithTimeout(2*time.Second), client.WithDefaultNamespace(d.Namespace()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := c.Version(d.Context(ctx)); err != nil {
		return errors.Join(err, c.Close())
	}
	d.Client = c
	return nil
}

// ImportImages imports and unpacks the test images in the namespace of ctx.
func (d *Daemon) ImportImages(ctx context.Context) error {
	archive, err := image.Build(ctx, filepath.Join(d.options.Layout.Build(), "images"))
	if err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("open images: %w", err)
	}
	defer func() { _ = f.Close() }()
	imported, err := d.Client.Import(ctx, f)
	if err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	for _, i := range imported {
		if err := client.NewImage(d.Client, i).Unpack(ctx, d.Snapshotter); err != nil {
			return fmt.Errorf("unpack %s: %w", i.Name, err)
		}
	}
	return nil
}

// chooseSnapshotter returns "overlayfs" when the file system below dir can be
// the upper layer of an overlay (another overlay cannot), else "native".
func chooseSnapshotter(dir string) string {
	probe := filepath.Join(dir, "probe")
	defer func() { _ = os.RemoveAll(probe) }()
	var options []string
	for _, part := range []string{"lowerdir", "upperdir", "workdir"} {
		path := filepath.Join(probe, part)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "native"
		}
		options = append(options, part+"="+path)
	}
	target := filepath.Join(probe, "merged")
	if err := os.Mkdir(target, 0o755); err != nil {
		return "native"
	}
	if err := unix.Mount("overlay", target, "overlay", 0, strings.Join(options, ",")); err != nil {
		return "native"
	}
	_ = unix.Unmount(target, unix.MNT_DETACH)
	return "overlayfs"
}
