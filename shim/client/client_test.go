package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

const patience = 30 * time.Second

// A container's life, from the start of its shim to the shim's end.
func TestLife(t *testing.T) {
	p := newProgram(t, "c1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := Connect(ctx, p.Bundle); !errdefs.IsNotFound(err) {
		t.Errorf("connected to a shim that was not started: %v", err)
	}
	s, err := Start(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.State(ctx, &task.StateRequest{ID: "c1"}); !errdefs.IsNotFound(err) {
		t.Errorf("state before create: %v, want not found", err)
	}
	if _, err := s.Create(ctx, &task.CreateTaskRequest{ID: "c1", Bundle: p.Bundle}); err != nil {
		t.Fatal(err)
	}
	checkTimeline(ctx, t, p)
	if err := s.Shutdown(ctx, "c1"); err != nil { // a container is left
		t.Error(err)
	}
	if _, err := s.Kill(ctx, &task.KillRequest{ID: "c1", Signal: 9}); err != nil {
		t.Error(err)
	}
	if exit, err := s.Wait(ctx, &task.WaitRequest{ID: "c1"}); err != nil || exit.ExitStatus != 137 {
		t.Errorf("exit %v, %v", exit, err)
	}
	if _, err := s.TTRPCTaskService.Delete(ctx, &task.DeleteRequest{ID: "c1"}); err != nil {
		t.Error(err)
	}
	pid := files.ShimPID(t, p.Bundle)
	if err := s.Shutdown(ctx, "c1"); err != nil {
		t.Error(err)
	}
	if alive(pid) {
		t.Error("the shim runs after Shutdown")
	}
	if err := s.Shutdown(ctx, "c1"); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
	if _, err := s.State(ctx, &task.StateRequest{ID: "c1"}); !errdefs.IsUnavailable(err) {
		t.Errorf("a call of a shim that has ended: %v, want unavailable", err)
	}
	if _, err := Connect(ctx, p.Bundle); !errdefs.IsUnavailable(err) {
		t.Errorf("connected to a shim that has ended: %v, want unavailable", err)
	}
}

// checkTimeline asks for the timeline as kata-runtime does, by the pod's id.
func checkTimeline(ctx context.Context, t *testing.T, p Program) {
	t.Helper()
	records := virtcontainers.Platform{RunDir: os.Getenv(shimtest.RunDirEnv)}.StateDir()
	if _, err := ConnectSandbox(ctx, records, "other"); !errdefs.IsNotFound(err) {
		t.Errorf("connected to a pod that is not there: %v", err)
	}
	if _, err := ConnectSandbox(ctx, records, ""); !errdefs.IsNotFound(err) {
		t.Errorf("connected to a pod without an id: %v", err)
	}
	s, err := ConnectSandbox(ctx, records, p.ID[:len(p.ID)-1])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	line, err := s.Timeline(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shim", "request", "boot", "qemu"} {
		if span, ok := line.Find(timeline.Host, "", name); !ok || span.End <= span.Start {
			t.Errorf("%s: %+v", name, span)
		}
	}
	if _, ok := line.Find(timeline.Host, p.ID, "create call"); !ok || line.Sandbox != p.ID || line.GuestError != "" {
		t.Errorf("timeline %+v", line)
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Delete cleans up after a killed shim, and removes its sandbox.
func TestDelete(t *testing.T) {
	p := newProgram(t, "c1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := Start(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(ctx, &task.CreateTaskRequest{ID: "c1", Bundle: p.Bundle}); err != nil {
		t.Fatal(err)
	}
	pid := files.ShimPID(t, p.Bundle)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(ctx, &task.WaitRequest{ID: "c1"}); !errdefs.IsUnavailable(err) {
		t.Errorf("wait: %v, want unavailable", err)
	}
	for range 2 {
		if exit, err := Delete(ctx, p); err != nil || exit.Status != 137 {
			t.Errorf("exit %v, %v", exit, err)
		}
	}
}

// A shim that has been started when its start is cancelled does not stay.
func TestCancelledStart(t *testing.T) {
	p := newProgram(t, "c1")
	dir := t.TempDir()
	shim, started := filepath.Join(dir, ShimName), filepath.Join(dir, "started") // delete looks for its name
	self, err := os.ReadFile(p.Path)
	if err == nil {
		err = os.WriteFile(shim, self, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%q \"$@\" || exit $?\nfor last; do :; done\n"+
		"[ $last != start ] || { : > %q; exec sleep 60; }\n", shim, started)
	p.Path = filepath.Join(dir, "program")
	if err := os.WriteFile(p.Path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := Start(ctx, p); err == nil {
		t.Fatal("it started")
	}
	if pid := files.ShimPID(t, p.Bundle); alive(pid) {
		t.Error("the shim still runs", unix.Kill(pid, unix.SIGKILL))
	}
}

func TestStartFails(t *testing.T) {
	p := newProgram(t, "c1")
	if err := os.WriteFile(filepath.Join(p.Bundle, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "start shim of container c1") || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("error %v, want the shim's own words", err)
	}
	p.Bundle = filepath.Join(p.Bundle, "none")
	if _, err := Start(t.Context(), p); !errdefs.IsNotFound(err) && !os.IsNotExist(err) && (err == nil || !strings.Contains(err.Error(), "none")) {
		t.Errorf("without a bundle: %v", err)
	}
}

func TestMakeStdio(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "io")
	s, err := MakeStdio(dir, Wanted{Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	if s.Err != "" || s.Stderr != nil || filepath.Dir(s.In) != dir {
		t.Errorf("%+v", s)
	}
	// Opening either end does not block on the shim.
	w, err := os.OpenFile(s.Out, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := w.WriteString("hello"); err != nil {
		t.Error(err)
	}
	_ = w.Close()
	if got, err := io.ReadAll(s.Stdout); string(got) != "hello" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeStdio(dir, Wanted{}); err == nil {
		t.Error("a directory that is there was taken")
	}
}
