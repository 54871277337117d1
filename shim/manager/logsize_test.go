package manager

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log that is a file keeps its newest lines, and all who have it open see them.
func TestLogFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFile)
	if err := os.WriteFile(path, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := openLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := openLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const lines = 3 * maxLogFile / 1024
	line := func(n int) string { return fmt.Sprintf("%08d%s\n", n, strings.Repeat("x", 1015)) }
	for n := range lines {
		if _, err := io.WriteString(w, line(n)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > maxLogFile {
			t.Fatalf("after %d lines: %v, %v", n+1, info, err)
		}
	}
	if _, err := io.WriteString(other, "last\n"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	said, rest, _ := bytes.Cut(text, []byte("\n"))
	if !bytes.Contains(said, []byte("bytes of older lines were removed from this log, which has at most 8 MiB")) {
		t.Errorf("it begins with %.200q", said)
	}
	rest, whole := bytes.CutSuffix(rest, []byte("last\n"))
	first := lines - len(rest)/1024
	for n := first; n < lines && whole; n++ {
		whole = string(rest[(n-first)*1024:(n-first+1)*1024]) == line(n)
	}
	if !whole || len(rest) < keptLogFile-1024 {
		t.Errorf("%d bytes are left, %.20q to %q", len(rest), rest, text[max(0, len(text)-20):])
	}
}

// A writer that saw the log's size before another trimmed it keeps what the other kept.
func TestLogFileIsTrimmedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFile)
	if err := os.WriteFile(path, bytes.Repeat([]byte("12345678901234567890123456789\n"), maxLogFile/30), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for range 2 {
		w, err := openLogFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !w.(lossyWriter).trim(info.Size()) {
			t.Error("the log was not trimmed")
		}
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, after.Size())
	}
	if sizes[0] < keptLogFile-1024 || sizes[1] != sizes[0] {
		t.Errorf("sizes %d, the second writer was to keep what the first kept", sizes)
	}
}
