package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ContainerdVersion is the 2.x release that is built from the Go module proxy.
const ContainerdVersion = "2.4.2"

// Release is one containerd to test with.
type Release struct {
	// Name is "1.6" or "2.4".
	Name string
	// Dir holds the release's containerd, ctr and runc shim.
	Dir string
	// ConfigVersion is the version of its configuration file.
	ConfigVersion int
	// hint says how to install it.
	hint string
}

// EnvReleases chooses the releases of the suites: names with commas between
// them; all when unset.
const EnvReleases = "KATABOX_TEST_CONTAINERD"

// Releases returns every release that the harness knows: the distribution's (1.6 in
// Debian 12) and the one built from its module.
func Releases(l Layout) []Release {
	return []Release{
		{Name: "1.6", Dir: distributionDir(l), ConfigVersion: 2, hint: "make deps"},
		{
			Name:          ContainerdVersion[:strings.LastIndex(ContainerdVersion, ".")],
			Dir:           filepath.Join(l.Build(), "containerd-"+ContainerdVersion),
			ConfigVersion: 3,
			hint:          "make containerd",
		},
	}
}

// distributionDir returns the directory of the distribution's containerd. "make deps"
// unpacks the package in the build directory if another containerd is installed, as
// Docker's containerd.io.
func distributionDir(l Layout) string {
	unpacked := filepath.Join(l.Build(), "packages", "containerd", "usr", "bin")
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked
	}
	return "/usr/bin"
}

// ReleasesFromEnv returns the releases that EnvReleases names.
func ReleasesFromEnv(l Layout) ([]Release, error) {
	names := os.Getenv(EnvReleases)
	if names == "" {
		return Releases(l), nil
	}
	var chosen []Release
	for name := range strings.SplitSeq(names, ",") {
		r, err := FindRelease(l, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", EnvReleases, err)
		}
		chosen = append(chosen, r)
	}
	return chosen, nil
}

// FindRelease returns the release called name.
func FindRelease(l Layout, name string) (Release, error) {
	var known []string
	for _, r := range Releases(l) {
		if r.Name == name {
			return r, nil
		}
		known = append(known, r.Name)
	}
	return Release{}, fmt.Errorf("unknown containerd release %q: want %s", name, strings.Join(known, " or "))
}

// Path returns the release's program called name.
func (r Release) Path(name string) string { return filepath.Join(r.Dir, name) }

// Version returns the version that the release's containerd prints ("1.6.20",
// or "1.7.24" under the name 1.6 on a newer distribution), or the release's
// name.
func (r Release) Version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, r.Path("containerd"), "--version").Output()
	fields := strings.Fields(string(out)) // containerd PACKAGE VERSION REVISION
	if err != nil || len(fields) < 3 {
		return r.Name
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(fields[2], "v"), "~")
	return version
}

func (r Release) missing() error {
	if _, err := os.Stat(r.Path("containerd")); err != nil {
		return fmt.Errorf("%w: run %q", err, r.hint)
	}
	return nil
}
