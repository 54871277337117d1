package crio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/cri/images"
	"github.com/katabox/katabox/tests/engines"
	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
)

// workDir and what is below it are on the private host's tmpfs.
const (
	workDir  = "/run/katabox-crio"
	endpoint = "unix://" + workDir + "/crio.sock"
	// kataConfigDir has the configuration of the checkout's Katabox.
	kataConfigDir = "/etc/kata-containers"
)

// The runtimes' names in CRI-O's configuration.
const (
	runc   = "runc"
	byShim = "kata"     // runtime_type "vm"
	asOCI  = "kata-oci" // runtime_type "oci"
)

// startTimeout bounds CRI-O's start, and sceneTimeout the scenes of one
// runtime, in which a machine boots twice.
const startTimeout, sceneTimeout = time.Minute, 10 * time.Minute

var layout harness.Layout

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: CRI-O needs root")
		os.Exit(0)
	}
	if host.Name() == "" {
		if err := makeImages(); err != nil {
			fmt.Fprintln(os.Stderr, "make the images:", err)
			os.Exit(1)
		}
	}
	os.Exit(host.RunTests(m, prepare, removeCgroups))
}

// makeImages makes the images before the private host is made, which has no
// network for downloads. They are kept.
func makeImages() (err error) {
	if layout, err = harness.FindLayout(); err == nil {
		_, err = images.Build(context.Background(), imageCache())
	}
	return err
}

func imageCache() string { return filepath.Join(layout.Build(), "cri-images") }

// prepare writes what CRI-O and Katabox read at fixed paths.
func prepare() (err error) {
	if layout, err = harness.FindLayout(); err != nil {
		return err
	}
	for _, program := range []string{"crio", "pinns"} {
		if _, err := os.Stat(filepath.Join(crioDir(), program)); err != nil {
			return fmt.Errorf("%w: run \"make test-crio\"", err)
		}
	}
	registry, err := serveImages()
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		"/etc/containers/registries.conf": registriesConf(strings.TrimPrefix(registry, "http://")),
		"/etc/containers/policy.json":     `{"default":[{"type":"insecureAcceptAnything"}]}`,
		"/etc/cni/net.d/10-crio.conflist": networkConf,
		workDir + "/crictl.yaml":          "runtime-endpoint: " + endpoint + "\nimage-endpoint: " + endpoint + "\ntimeout: 300\n",
		workDir + "/crio.conf":            crioConf(),
		workDir + "/runc.sh":              runcScript,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			return err
		}
	}
	for _, dir := range []string{kataConfigDir, layout.Logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return harness.KataConfig{}.Write(layout, kataConfigDir+"/configuration.toml")
}

func crioDir() string { return filepath.Join(layout.Build(), "engines", "crio-"+engines.CRIOVersion) }

// serveImages starts a registry of the CRI suite's images, which ends with this
// process.
func serveImages() (string, error) {
	store, err := images.Build(context.Background(), imageCache())
	if err != nil {
		return "", err
	}
	server, err := images.Serve(store)
	if err != nil {
		return "", err
	}
	return server.URL, nil
}

// startDaemon starts CRI-O with the checkout's Katabox.
func startDaemon(ctx context.Context, t *testing.T) *harness.Child {
	t.Helper()
	return startCRIO(ctx, t, "--config", workDir+"/crio.conf", "--config-dir", workDir+"/none")
}

// startCRIO starts CRI-O and waits until it answers.
func startCRIO(ctx context.Context, t *testing.T, args ...string) *harness.Child {
	t.Helper()
	d, err := harness.StartChild(exec.Command(filepath.Join(crioDir(), "crio"), args...), filepath.Join(layout.Logs(), "crio.log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = d.Ready(ctx, func(ctx context.Context) error {
		if r := crictl(ctx, "", "version"); r.code != 0 {
			return errors.New(r.errors)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stopDaemon ends CRI-O; its pods live on.
func stopDaemon(t *testing.T, d *harness.Child) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// result is how a command ended.
type result struct {
	code        int
	out, errors string
}

// failure returns a failed command's errors, or "".
func (r result) failure() string {
	if r.code == 0 {
		return ""
	}
	return r.errors
}

// crictl runs one of its commands with that input.
func crictl(ctx context.Context, input string, args ...string) result {
	return command(ctx, input, crictlPath(), append([]string{"--config", workDir + "/crictl.yaml"}, args...)...)
}

func crictlPath() string {
	return filepath.Join(layout.Build(), "cri-tools-"+env.CRIToolsVersion, "crictl")
}

func command(ctx context.Context, input, program string, args ...string) result {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	r := result{out: out.String(), errors: errs.String()}
	if err != nil {
		r.code = -1
		r.errors += err.Error()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			r.code = exit.ExitCode()
		}
	}
	return r
}
