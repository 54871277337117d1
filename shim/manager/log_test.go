package manager

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// ownLogger returns a context with a separate logger: OpenLog redirects the
// logger that it finds.
func ownLogger() context.Context {
	return log.WithLogger(context.Background(), logrus.NewEntry(logrus.New()))
}

// keepLevel undoes what OpenLog does to the process.
func keepLevel(t *testing.T) {
	t.Helper()
	level, formatter := log.GetLevel(), log.L.Logger.Formatter
	t.Cleanup(func() {
		log.L.Logger.Formatter = formatter
		if err := log.SetLevel(level.String()); err != nil {
			t.Error(err)
		}
	})
}

func TestOpenLogFile(t *testing.T) {
	keepLevel(t)
	dir := t.TempDir()
	path := filepath.Join(dir, logFile)
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, err := OpenLog(ownLogger(), &Params{ID: "pod", Bundle: dir, Debug: true})
	if err != nil {
		t.Fatal(err)
	}
	log.G(ctx).Warn("hello")
	data, err := os.ReadFile(path)
	if text := string(data); err != nil || !strings.HasPrefix(text, "before\n") || !strings.Contains(text, "hello") || !strings.Contains(text, "sandbox=pod") {
		t.Errorf("log: %q, %v", text, err)
	}
	if log.GetLevel() != log.DebugLevel {
		t.Errorf("level %s", log.GetLevel())
	}
}

// A FIFO without a reader takes what fits and never blocks.
func TestOpenLogFIFO(t *testing.T) {
	keepLevel(t)
	dir := t.TempDir()
	path := filepath.Join(dir, logFile)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, err := OpenLog(ownLogger(), &Params{ID: "pod", Bundle: dir})
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 1000)
	for range 1000 { // far more than a FIFO holds
		log.G(ctx).Warn(line)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	buf := make([]byte, 4096)
	if n, err := reader.Read(buf); err != nil || !strings.Contains(string(buf[:n]), line) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	_ = reader.Close() // a reader that goes away does not matter either
	log.G(ctx).Warn("afterwards")
}

func TestOpenLogNowhere(t *testing.T) {
	keepLevel(t)
	dir := t.TempDir()
	ctx, err := OpenLog(ownLogger(), &Params{ID: "pod", Bundle: dir})
	if err != nil {
		t.Fatal(err)
	}
	log.G(ctx).Warn("hello")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files: %v, %v", entries, err)
	}
	if err := os.Mkdir(filepath.Join(dir, logFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(ownLogger(), &Params{Bundle: dir}); err == nil || !strings.Contains(err.Error(), "open log") {
		t.Errorf("a directory for a log: %v", err)
	}
}
