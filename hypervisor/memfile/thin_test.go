package memfile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
)

func TestThin(t *testing.T) {
	f := memory(t)
	content := make([]byte, 3*imageBlock+pageSize)
	for _, page := range []int{0, 1, 5, 63, 64, 65, 130} {
		content[page*pageSize+17] = 1
	}
	if _, err := f.WriteAt(content, 0); err != nil { // zeros are written too
		t.Fatal(err)
	}
	freed, err := Thin(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(len(content) - 7*pageSize); freed != want {
		t.Errorf("%d bytes freed, want %d", freed, want)
	}
	if used, _ := allocated(t, f); used != 7*pageSize {
		t.Errorf("%d bytes are allocated, want %d", used, 7*pageSize)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the content has changed: %v", err)
	}
	if freed, err := Thin(t.Context(), f); freed != 0 || err != nil {
		t.Errorf("again: %d bytes, %v", freed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Thin(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}

// memory returns an empty file in memory, with a name that can be opened.
func memory(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "thin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	})
	return f
}
