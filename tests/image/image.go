package image

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Names under which the images are imported.
const (
	Busybox = "katabox.test/busybox:latest"
	Pause   = "katabox.test/pause:latest"
)

// Users and groups of the busybox image's /etc/passwd and /etc/group.
const (
	AppUID      = 1000 // user "app"
	AppGID      = 1000 // group "app"
	OperatorGID = 37   // group "operator", of which app is a member
)

//go:embed pause/pause.c
var pauseSource []byte

// Build makes the archive in dir, unless the one there was made from the same
// inputs, and returns its path. It runs busybox and gcc of the host; an error
// names the Debian package to install.
func Build(ctx context.Context, dir string) (string, error) {
	busybox, err := hostBusybox()
	if err != nil {
		return "", err
	}
	applets, err := appletPaths(ctx, busybox)
	if err != nil {
		return "", err
	}
	binary, err := os.ReadFile(busybox)
	if err != nil {
		return "", fmt.Errorf("read busybox: %w", err)
	}
	path := filepath.Join(dir, "images-"+inputSum(binary, applets)+".tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make image directory: %w", err)
	}
	pause, err := compilePause(ctx, dir)
	if err != nil {
		return "", err
	}
	images := []image{busyboxImage(binary, applets), pauseImage(pause)}
	if err := writeLayout(path, images); err != nil {
		return "", err
	}
	return path, nil
}

// layoutVersion is part of the cache key: raise it when the images' content
// changes for the same inputs.
const layoutVersion = "3"

func inputSum(binary []byte, applets []string) string {
	h := sha256.New()
	h.Write([]byte(layoutVersion))
	h.Write(binary)
	h.Write(pauseSource)
	h.Write([]byte(strings.Join(applets, "\n")))
	return fmt.Sprintf("%x", h.Sum(nil))[:12]
}

// hostBusybox finds a busybox that runs without the host's libraries.
func hostBusybox() (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", fmt.Errorf("find busybox: %w (apt-get install busybox-static)", err)
	}
	static, err := isStatic(path)
	if err != nil {
		return "", err
	}
	if !static {
		return "", fmt.Errorf("%s needs shared libraries (apt-get install busybox-static)", path)
	}
	return path, nil
}

// appletPaths lists each applet's path, without a leading slash.
func appletPaths(ctx context.Context, busybox string) ([]string, error) {
	out, err := exec.CommandContext(ctx, busybox, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("list busybox applets: %w", err)
	}
	return strings.Fields(string(out)), nil
}

func compilePause(ctx context.Context, dir string) ([]byte, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return nil, fmt.Errorf("find a C compiler: %w (apt-get install gcc libc6-dev)", err)
	}
	work, err := os.MkdirTemp(dir, "pause-")
	if err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	out := filepath.Join(work, "pause")
	cmd := exec.CommandContext(ctx, gcc, "-static", "-Os", "-s", "-Wall", "-Werror", "-x", "c", "-o", out, "-")
	cmd.Stdin = strings.NewReader(string(pauseSource))
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile pause/pause.c: %w: %s", err, msg)
	}
	return os.ReadFile(out)
}
