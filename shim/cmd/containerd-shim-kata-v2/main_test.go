package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/cmd/internal/platform"
	"github.com/katabox/katabox/shim/manager"
)

// shimEnv makes this program, run again, the shim.
const shimEnv = "KATABOX_TEST_SHIM"

func TestMain(m *testing.M) {
	if os.Getenv(shimEnv) != "" {
		main()
		return
	}
	m.Run()
}

// shim runs the shim with those arguments in an empty bundle.
func shim(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), shimEnv+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func TestVersion(t *testing.T) {
	for _, flag := range []string{"-v", "--version"} {
		stdout, stderr, err := shim(t, flag)
		if err != nil || !strings.HasSuffix(stdout, " "+version+"\n") || stderr != "" {
			t.Errorf("%s: %q, %q, %v", flag, stdout, stderr, err)
		}
	}
}

func TestInfo(t *testing.T) {
	stdout, stderr, err := shim(t, "-info")
	if err != nil || stderr != "" {
		t.Fatalf("%q, %v", stderr, err)
	}
	var info types.RuntimeInfo
	if err := proto.Unmarshal([]byte(stdout), &info); err != nil || info.Name != manager.RuntimeName {
		t.Errorf("info %v, %v", &info, err)
	}
}

// CRI-O passes this word alone.
func TestFeatures(t *testing.T) {
	stdout, stderr, err := shim(t, "features")
	if err != nil || stderr != "" {
		t.Fatalf("%q, %v", stderr, err)
	}
	var answer features.Features
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || answer.OCIVersionMax == "" || !slices.Contains(answer.MountOptions, "rro") {
		t.Errorf("features %+v, %v", answer, err)
	}
}

// An error goes to stderr, in one line, and nothing to stdout: an engine takes
// every byte of it for the answer.
func TestErrors(t *testing.T) {
	for name, args := range map[string][]string{
		"no id":          {"-namespace", "n", "start"},
		"bad id":         {"-namespace", "n", "-id", "a/b", "start"},
		"unknown action": {"-namespace", "n", "-id", "c1", "stop"},
		"not a daemon":   {"-namespace", "n", "-id", "c1"}, // without its socket
	} {
		stdout, stderr, err := shim(t, args...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: %q, %q, %v", name, stdout, stderr, err)
		}
	}
	if _, _, err := shim(t, "-h"); err != nil {
		t.Errorf("help is an error: %v", err)
	}
}

// Starting a service container needs no machine: the bundle of its sandbox must
// exist beside it.
func TestStartWithoutSandbox(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "c1")
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	spec := `{"root":{"path":"rootfs"},"process":{"args":["true"],"cwd":"/"},"linux":{},"annotations":{
		"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.sandbox-id":"pod"}}`
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := shim(t, "-namespace", "n", "-id", "c1", "-bundle", bundle, "start")
	if err == nil || stdout != "" || !strings.Contains(stderr, "sandbox pod") {
		t.Errorf("%q, %q, %v", stdout, stderr, err)
	}
}

// The step that fails is in the variable, or in the file that it names.
func TestFailpoint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "step")
	if err := os.WriteFile(file, []byte("guest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{"": "", "resume": "resume", "@" + file: "guest"} {
		t.Setenv(platform.FailpointEnv, value)
		if got := platform.Host(t.Context()).Failpoint; got != want {
			t.Errorf("%s=%s: step %q, want %q", platform.FailpointEnv, value, got, want)
		}
	}
}

func TestHost(t *testing.T) {
	t.Setenv(platform.FailpointEnv, "resume")
	p := platform.Host(context.Background())
	if p.Monitor == nil || p.RunDir != platform.RunDir || p.Failpoint != "resume" || p.KernelParams == "" {
		t.Errorf("platform %+v", p)
	}
	if !slices.Contains([]string{"kvm", "tcg"}, string(p.Accel)) || p.Accel == "tcg" && p.AccelReason == "" {
		t.Errorf("accelerator %s, %q", p.Accel, p.AccelReason)
	}
	transport, err := p.OpenTransport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	if transport.Kind() == "" {
		t.Error("the transport has no name")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := transport.Dial(ctx, 1024); err == nil {
		_ = conn.Close()
		t.Error("something answers although there is no machine")
	}
}
