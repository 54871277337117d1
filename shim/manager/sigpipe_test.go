package manager

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// The programs that a shim starts, hooks and loggers, get SIGPIPE as those of runc's
// shim do: without it the left side of "yes | head" may never end.
func TestProgramsGetSIGPIPE(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	p := newParams(t, host.RunDir, "pod", nil)
	dir := t.TempDir()
	said := filepath.Join(dir, "hook")
	hooks(t, p, &specs.Hooks{CreateRuntime: []specs.Hook{{
		Path: "/bin/sh", Args: []string{"sh", "-c", "grep SigIgn /proc/self/status > " + said},
	}}})
	address, err := start(p)
	if err != nil {
		t.Fatal(err)
	}
	logger := filepath.Join(dir, "logger")
	if err := os.WriteFile(logger, []byte("#!/bin/sh\ngrep SigIgn /proc/self/status > "+logger+".said\nexec 5>&-\nexec cat <&3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	service := connect(t, address)
	if _, err := service.Create(t.Context(), &task.CreateTaskRequest{ID: "pod", Bundle: p.Bundle, Stdout: "binary://" + logger}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{said, logger + ".said"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var ignored uint64
		if _, err := fmt.Sscanf(strings.TrimSpace(string(data)), "SigIgn: %x", &ignored); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if ignored&(1<<12) != 0 { // the signals are numbered from 1
			t.Errorf("%s: SIGPIPE is ignored: %x", filepath.Base(file), ignored)
		}
	}
	if _, err := service.Delete(t.Context(), &task.DeleteRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	pid := files.ShimPID(t, p.Bundle)
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	reap(t, pid)
}

// hooks gives a bundle's spec hooks.
func hooks(t *testing.T, p *Params, hooks *specs.Hooks) {
	t.Helper()
	b, err := bundle.Load(p.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	b.Spec.Hooks = hooks
	data, err := json.Marshal(b.Spec)
	if err != nil {
		t.Fatal(err)
	}
	write(t, b.Dir, bundle.SpecFile, string(data))
}
