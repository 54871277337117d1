package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
)

// The releases that are built from the Go module proxy; tests/tools/engines.sh
// reads them here.
const (
	NerdctlVersion = "2.0.4"
	DockerVersion  = "28.5.2"
	CRIOVersion    = "1.34.0" // of tests/crio
)

// cniBinDir is where Debian's containernetworking-plugins installs.
const cniBinDir = "/usr/lib/cni"

// workDir holds the engines' roots, sockets and configurations. It is on the
// private host's tmpfs, on which any storage driver works.
const workDir = "/run/katabox-engines"

func enginesDir(l harness.Layout) string { return filepath.Join(l.Build(), "engines") }

func nerdctlDir(l harness.Layout) string {
	return filepath.Join(enginesDir(l), "nerdctl-"+NerdctlVersion)
}

func dockerDir(l harness.Layout) string {
	return filepath.Join(enginesDir(l), "docker-"+DockerVersion)
}

// debianDir returns the root into which Debian's packages were unpacked.
func debianDir(l harness.Layout) string { return filepath.Join(enginesDir(l), "debian") }

func debianLibraries(l harness.Layout) string {
	return filepath.Join(debianDir(l), "usr/lib/x86_64-linux-gnu")
}

// tini is the init that engines put into a container for --init.
func tini(l harness.Layout) string { return filepath.Join(debianDir(l), "usr/bin/tini-static") }

// missing returns an error that names missing files, and the command that gets
// them.
func missing(command string, paths ...string) error {
	var errs []error
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%w: run %q", err, command))
		}
	}
	return errors.Join(errs...)
}

// searchPath is a PATH with the host's usual directories at its end.
func searchPath(first ...string) string {
	return strings.Join(append(first, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")
}

// cgroupParent returns the cgroup below which every engine puts its containers:
// cgroups are the machine's.
func cgroupParent() string { return "/" + host.Name() }

var releaseWord = regexp.MustCompile(`version (([0-9]+)\.[0-9]+)`)

// releaseOf asks a program for its release: "20.10", and the number before the dot.
func releaseOf(ctx context.Context, libraries, program string) (release string, major int, err error) {
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = []string{"LD_LIBRARY_PATH=" + libraries}
	out, err := cmd.CombinedOutput()
	found := releaseWord.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		return "", 0, fmt.Errorf("ask %s for its release: %w: %.200q", program, err, out)
	}
	major, err = strconv.Atoi(found[2])
	return found[1], major, err
}

// lookIn finds a program in a PATH.
func lookIn(path, name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return filepath.Join(dir, name), nil
		}
	}
	return "", fmt.Errorf("no %s in %s", name, path)
}

// kataConfigPath is where Katabox looks for its configuration first.
const kataConfigPath = "/etc/kata-containers/configuration.toml"

// kataConfig applies seccomp profiles in the guest, like the file that "make
// install" installs.
var kataConfig = harness.KataConfig{Extra: "[runtime]\ndisable_guest_seccomp = false\n"}
