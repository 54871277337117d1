package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDebugCommandRefused(t *testing.T) {
	h := withRecords(t, false)
	for args, want := range map[string]string{
		"": "want a pod's id", "other": "no pod of that id runs", "p1": "debug pod p1: 409 Conflict: no debug console", "p1 ls --all": "no debug console",
	} {
		out, errs, code := call(t, h, append([]string{"debug"}, strings.Fields(args)...)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d, %q %q, want %q", args, code, out, errs, want)
		}
	}
}

// exec takes a pod's id, too, unless a container has that name.
func TestExecByPod(t *testing.T) {
	h, store := withRecords(t, false), t.TempDir()
	t.Setenv("KATABOX_STORE", store)
	if err := os.MkdirAll(filepath.Join(store, "containers", "web"), 0o700); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                 "want a container and a command",
		"other":            "no container and no running pod is called other (see kata-runtime ps and pods)",
		"other ls":         "no container and no running pod is called other",
		"p1":               "debug pod p1: 409 Conflict: no debug console",
		"-it p1 ls --all":  "debug pod p1: 409 Conflict: no debug console",
		"-e A=b p1 ls":     "--env: p1 is a pod, and the command would run in its guest",
		"-u 1000 p1 ls":    "--user: p1 is a pod",
		"--workdir / p1 x": "--workdir: p1 is a pod",
		"web":              "want a command for container web (a shell in its guest: kata-runtime debug web)",
	} {
		out, errs, code := call(t, h, append([]string{"exec"}, strings.Fields(args)...)...)
		if code != 125 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d, %q %q, want %q", args, code, out, errs, want)
		}
	}
}
