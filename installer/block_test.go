package installer

import (
	"bytes"
	"testing"
)

func FuzzBlock(f *testing.F) {
	f.Add([]byte("version = 2\n"), true)
	f.Add([]byte("version = 2"), false)
	f.Add([]byte{}, false)
	f.Add([]byte("a\n\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, start bool) {
		if lineStart(text, blockBegin) >= 0 || lineStart(text, blockEnd) >= 0 {
			t.Skip("no node's own text has that")
		}
		where := atEnd
		if start {
			where = atStart
		}
		got, gone, err := withoutBlock(withBlock(text, where, "x = 1\n"))
		if err != nil || gone || !bytes.Equal(got, text) {
			t.Errorf("%q became %q, gone %v, %v", text, got, gone, err)
		}
	})
}

// An administrator's additions around the block are kept.
func TestBlockWithChangesAround(t *testing.T) {
	text := string(withBlock([]byte("a = 1"), atEnd, "x = 1\n")) + "b = 2\n"
	got, _, err := withoutBlock([]byte(text))
	if want := "a = 1\nb = 2\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	text = string(withBlock(nil, asFile, "x = 1\n"))
	if got, gone, err := withoutBlock([]byte(text + "b = 2\n")); err != nil || gone || string(got) != "b = 2\n" {
		t.Errorf("a file with more in it: %q, gone %v, %v", got, gone, err)
	}
}
