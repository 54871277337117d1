package iptables

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a Children that counts the processes that it was told of.
type counted struct{ begun, ended int }

func (c *counted) Begin() func(int) {
	return func(pid int) {
		if pid > 0 {
			c.begun++
		}
	}
}

func (c *counted) Done(int) { c.ended++ }

// tools makes tools of which each is that script.
func tools(t *testing.T, script string) *Tools {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	children := new(counted)
	t.Cleanup(func() {
		if children.begun != children.ended {
			t.Errorf("%d processes were started, %d waited for", children.begun, children.ended)
		}
	})
	return &Tools{Children: children, Dirs: []string{"/none", dir}}
}

func TestTheRightProgram(t *testing.T) {
	dir := t.TempDir()
	tools := tools(t, `basename $0; cat >> `+dir+`/got; echo $0 "$@" >> `+dir+`/got`)
	for ipv6, want := range map[bool]string{false: "iptables", true: "ip6tables"} {
		if got, err := tools.Save(t.Context(), ipv6); err != nil || string(got) != want+"-save\n" {
			t.Errorf("save: %q, %v", got, err)
		}
		if err := tools.Restore(t.Context(), ipv6, []byte("rules for ")); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(dir + "/got")
		if err != nil || !strings.Contains(string(got), "rules for "+tools.Dirs[1]+"/"+want+"-restore --wait=5\n") {
			t.Errorf("restore: %q, %v", got, err)
		}
	}
}

// The tool has the guest's root directory and no environment but what a shell sets.
func TestSurroundings(t *testing.T) {
	t.Setenv("XTABLES_LIBDIR", "/elsewhere")
	got, err := tools(t, "pwd; cat /proc/self/environ | tr '\\0' '\\n' | grep -v ^PWD=; true").Save(t.Context(), false)
	if err != nil || string(got) != "/\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	for script, want := range map[string]string{
		"echo line 3 failed >&2; exit 2":              "iptables-save: exit status 2: line 3 failed",
		"yes complaint | head -c 1000000 >&2; exit 1": "iptables-save: exit status 1: complaint\ncomplaint",
		"kill -9 $$":                "iptables-save: signal: killed",
		"head -c 1048577 /dev/zero": "it writes more than 1048576 bytes",
	} {
		if _, err := tools(t, script).Save(t.Context(), false); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > maxComplaint+100 {
			t.Errorf("%s: %.200v", script, err)
		}
	}
	most, err := tools(t, "head -c 1048576 /dev/zero").Save(t.Context(), false)
	if err != nil || len(most) != api.MaxIPTables {
		t.Errorf("the longest text: %d bytes, %v", len(most), err)
	}
	if err := tools(t, "cat").Restore(t.Context(), false, make([]byte, api.MaxIPTables+1)); !errdefs.IsInvalidArgument(err) {
		t.Errorf("rules that are too long: %v", err)
	}
}

func TestNoTools(t *testing.T) {
	tools := &Tools{Children: new(counted), Dirs: []string{t.TempDir()}}
	_, save := tools.Save(t.Context(), true)
	for program, err := range map[string]error{"ip6tables-save": save, "iptables-restore": tools.Restore(t.Context(), false, nil)} {
		if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "no "+program+": ") || !strings.Contains(err.Error(), "make guest-image-iptables") {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// The end of a call kills the tool, and a child that holds its output does not
// keep the call.
func TestCallEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	tools, ended := tools(t, "sleep 5 & echo $$ > "+file+".new; mv "+file+".new "+file+"; exec sleep 1000"), make(chan error)
	go func() {
		_, err := tools.Save(ctx, false)
		ended <- err
	}()
	var text []byte
	for deadline := time.Now().Add(30 * time.Second); len(text) == 0; time.Sleep(10 * time.Millisecond) {
		if text, _ = os.ReadFile(file); time.Now().After(deadline) {
			t.Fatal("the tool does not run")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		t.Errorf("process %d lives on: %v", pid, err)
	}
}
