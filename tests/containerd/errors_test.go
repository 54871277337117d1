package containerd

import (
	"strings"
	"testing"
)

// wantError checks that err is one clear message: it contains all words, is not
// a crash, and is short enough to be read.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that names %q", words)
		return
	}
	text := err.Error()
	t.Logf("error: %s", text)
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the error does not name %q: %s", w, text)
		}
	}
	for _, bad := range []string{"panic", "goroutine ", "runtime error"} {
		if strings.Contains(text, bad) {
			t.Errorf("the error is a crash: %s", text)
		}
	}
	if len(text) > 8<<10 {
		t.Errorf("the error is %d bytes long", len(text))
	}
}
