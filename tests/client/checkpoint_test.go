package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// checkpoints are the suite's tests of checkpoints. With runc they need CRIU,
// which Debian does not have in each release.
const checkpoints = "TestCheckpoint.*"

// The suite's tests of checkpoints pass. They skip themselves without a program of
// the name criu, which nothing calls here.
func TestCheckpoints(t *testing.T) {
	if !bed.runtime.VM {
		t.Skip("only Katabox can do without CRIU")
	}
	if err := writeConfig(harness.KataConfig{QEMU: bed.layout.SavingQEMU(t), Virtiofsd: harness.OwnVirtiofs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writeConfig(harness.KataConfig{}); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "criu"), []byte("#!/bin/sh\necho criu is called >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	with := bed.suite
	with.env = append(with.env[:len(with.env):len(with.env)], "PATH="+dir+":"+bed.path)
	start := time.Now()
	found, err := with.run(context.WithoutCancel(t.Context()), harness.Kata, checkpoints, "", "client-checkpoints")
	if err != nil {
		t.Error(err)
	}
	fmt.Printf("client suite, checkpoints: %d passed, %d failed, %d skipped in %s\n",
		found.count(passed), found.count(failed), found.count(skipped), time.Since(start).Round(time.Second))
	for name, o := range found {
		if o.state != passed {
			t.Errorf("%s: %s:\n%s", name, o.state, o.output)
		}
	}
	if len(found) == 0 {
		t.Error("no test has run")
	}
	if left := awaitNone(podFiles); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
