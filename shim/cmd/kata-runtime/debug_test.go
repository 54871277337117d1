package main

import (
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
