package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// root is the root file system of one release, below the checkout's build.
type root struct {
	release  string
	layout   harness.Layout
	dir      string
	progress time.Duration
	// out is where progress is written.
	out io.Writer
}

// packages are what README.md tells a newcomer to have before the first
// command, beside Go.
const packages = "ca-certificates,git,make"

var codeName = regexp.MustCompile(`^[a-z]+$`)

func findRoot(release string) (*root, error) {
	if !codeName.MatchString(release) {
		return nil, fmt.Errorf("-release %q: want a code name like trixie", release)
	}
	layout, err := harness.FindLayout()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(layout.Build(), "distro", release)
	return &root{release: release, layout: layout, dir: dir, progress: 15 * time.Second, out: os.Stdout}, nil
}

// tree is the root file system itself.
func (r *root) tree() string { return filepath.Join(r.dir, "root") }

// own returns the directory that replaces, in there, one of the checkout's
// build directories: builds of one release do not work on another.
func (r *root) own(name string) string { return filepath.Join(r.dir, "checkout", name) }

// lock makes this the only program that uses the root file system.
func (r *root) lock() (unlock func(), err error) {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", r.dir, err)
	}
	f, err := os.Open(r.dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", r.dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: another run uses it: %w", r.dir, err), f.Close())
	}
	return func() { f.Close() }, nil
}

// prepare makes the root file system, unless it exists.
func (r *root) prepare(ctx context.Context, fresh bool) error {
	if fresh {
		for _, dir := range []string{r.tree(), r.own("")} {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove the old root: %w", err)
			}
		}
	}
	if _, err := os.Stat(r.tree()); err == nil {
		fmt.Fprintf(r.out, "distro: %s is there\n", r.tree())
		return nil
	}
	// Packages contain Go files that are not part of this module.
	if err := os.WriteFile(filepath.Join(r.dir, "go.mod"), []byte("module distro\n"), 0o644); err != nil {
		return fmt.Errorf("keep %s out of this module: %w", r.dir, err)
	}
	// An unfinished root has another name, and is discarded.
	unfinished := r.tree() + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("remove an unfinished root: %w", err)
	}
	if err := r.bootstrap(ctx, unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, r.tree())
}

// bootstrap runs debootstrap, with a line of progress now and then.
func (r *root) bootstrap(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("debootstrap"); err != nil {
		return fmt.Errorf("%w: run \"apt-get install debootstrap\"", err)
	}
	archive, err := archiveOf(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, "debootstrap.log"))
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer log.Close()
	fmt.Fprintf(r.out, "distro: making Debian %s in %s (log: %s)\n", r.release, dir, log.Name())
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+packages, r.release, dir, archive, script(r.release))
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := r.wait(ctx, cmd, log.Name()); err != nil {
		return fmt.Errorf("debootstrap %s: %w; %s ends so:\n%s", r.release, err, log.Name(), lastLines(log.Name(), 5))
	}
	fmt.Fprintf(r.out, "distro: Debian %s is made (%.0f s)\n", r.release, time.Since(began).Seconds())
	return nil
}

// script names debootstrap's script for a release: sid's for one that is newer than
// the installed debootstrap, in which each later one's is a link to that.
func script(release string) string {
	if _, err := os.Stat(filepath.Join("/usr/share/debootstrap/scripts", release)); err != nil {
		return "sid"
	}
	return release
}

// wait runs cmd and prints the log's last line at intervals.
func (r *root) wait(ctx context.Context, cmd *exec.Cmd, log string) error {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ticks := time.NewTicker(r.progress)
	defer ticks.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, context.Cause(ctx))
		case <-ticks.C:
			fmt.Fprintf(r.out, "distro: %s\n", lastLines(log, 1))
		}
	}
}

// archiveOf returns the address from which this host gets Debian's packages.
func archiveOf(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Identifier: Packages", "Origin: Debian", "Component: main").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for the archive's address: %w", err)
	}
	address, _, _ := strings.Cut(string(out), "\n")
	if address == "" {
		return "", errors.New("ask apt for the archive's address: no source is Debian's")
	}
	return address, nil
}

// lastLines returns the last n lines of a log.
func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
