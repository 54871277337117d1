package manager

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// stubbornLogger makes a logger that does not end with its output, and returns its
// URI and the file with its pid.
func stubbornLogger(t *testing.T) (uri, pidFile string) {
	t.Helper()
	dir := t.TempDir()
	uri, pidFile = filepath.Join(dir, "logger"), filepath.Join(dir, "pid")
	// It is ready once it is the program that sleeps.
	body := "#!/bin/sh\necho $$ > " + pidFile + "\nexec sleep 1000 5>&-\n"
	if err := os.WriteFile(uri, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	return "binary://" + uri, pidFile
}

// A shim waits for a logger that does not end, which may be written to still, and
// ends it. Its engine does not wait for that: not with Shutdown, nor with delete.
func TestShimStaysForLoggers(t *testing.T) {
	host := newHost(t)
	p, address, pid := newDaemon(t, host)
	daemon, err := persist.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	uri, pidFile := stubbornLogger(t)
	client := dial(t, address)
	service := task.NewTTRPCTaskClient(client)
	if _, err := service.Create(t.Context(), &task.CreateTaskRequest{ID: "pod", Bundle: p.Bundle, Stdout: uri}); err != nil {
		t.Fatal(err)
	}
	logger := processOf(t, pidFile)
	t.Cleanup(func() { _ = logger.Kill(time.Second) })
	if _, err := service.Delete(t.Context(), &task.DeleteRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	began := time.Now()
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > endGrace*2/3 {
		t.Errorf("Shutdown took %v", took)
	}
	if err := client.Close(); err != nil { // containerd calls delete then
		t.Error(err)
	}
	if daemon.Await(endGrace/3) == nil {
		t.Error("the shim did not wait for its logger")
	}
	remove(t, p, host)
	if !logger.Alive() {
		t.Error("the logger was killed early")
	}
	if _, err := os.Stat(filepath.Join(p.Bundle, bundle.PIDFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the shim is still the bundle's: %v", err)
	}
	if err := logger.Kill(10 * time.Second); err != nil { // or SIGTERM would come
		t.Error(err)
	}
	reap(t, daemon.PID)
}

// processOf is the process whose pid is in a file.
func processOf(t *testing.T, pidFile string) persist.Process {
	t.Helper()
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := persist.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
