package images

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed programs
var sources embed.FS

// Build makes all images. What takes time is kept in the directory cache: the
// compiled programs, and two packages that apt-get downloads once. An error
// names the Debian package that is missing.
func Build(ctx context.Context, cache string) (*Store, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make image cache: %w", err)
	}
	p, err := gather(ctx, cache)
	if err != nil {
		return nil, err
	}
	s := newStore()
	for _, def := range catalog(p) {
		if err := s.add(def); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// gather makes the layers of the images that run.
func gather(ctx context.Context, cache string) (parts, error) {
	programs := map[string][]byte{}
	for _, name := range []string{"ipcs", "pgrep", "nonewprivs", idle} {
		binary, err := compile(ctx, cache, name)
		if err != nil {
			return parts{}, err
		}
		programs[name] = binary
	}
	busybox, applets, err := busyboxProgram(ctx, cache)
	if err != nil {
		return parts{}, err
	}
	nginx, err := debianProgram(ctx, cache, "nginx", "usr/sbin/nginx")
	if err != nil {
		return parts{}, err
	}
	return parts{
		busybox:  busyboxLayer(busybox, applets, programs["ipcs"], programs["pgrep"]),
		nginx:    nginxLayer(nginx),
		hostnet:  layer{nginxConfig(hostnetPort)},
		escalate: escalateLayer(programs["nonewprivs"]),
		idle:     programs[idle],
	}, nil
}

// compile returns the static program made from programs/name.c.
func compile(ctx context.Context, cache, name string) ([]byte, error) {
	source, err := sources.ReadFile("programs/" + name + ".c")
	if err != nil {
		return nil, fmt.Errorf("read program's source: %w", err)
	}
	out := filepath.Join(cache, fmt.Sprintf("%s-%x", name, sha256.Sum256(source))[:len(name)+13])
	if binary, err := os.ReadFile(out); err == nil {
		return binary, nil
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return nil, fmt.Errorf("find a C compiler: %w (apt-get install gcc libc6-dev)", err)
	}
	cmd := exec.CommandContext(ctx, gcc, "-static", "-Os", "-s", "-Wall", "-Werror", "-x", "c", "-o", out+".part", "-")
	cmd.Stdin = strings.NewReader(string(source))
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile programs/%s.c: %w: %s", name, err, msg)
	}
	if err := os.Rename(out+".part", out); err != nil {
		return nil, fmt.Errorf("keep program: %w", err)
	}
	return os.ReadFile(out)
}

// busyboxProgram returns Debian's busybox with its libraries, and the paths of
// its applets, without a leading slash.
//
// Not busybox-static: its shell runs applets without looking for their files, so
// the suite would not see that /bin/ls is masked. This one has everything that
// the suite calls except ipcs and pgrep; building busybox for those two takes
// minutes.
func busyboxProgram(ctx context.Context, cache string) (files layer, applets []string, err error) {
	const path = "bin/busybox"
	if files, err = debianProgram(ctx, cache, "busybox", path); err != nil {
		return nil, nil, err
	}
	out, err := exec.CommandContext(ctx, unpacked(filepath.Join(cache, "busybox"), path), "--list-full").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list busybox applets: %w", err)
	}
	return files, strings.Fields(string(out)), nil
}
