package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFramesComeBack(t *testing.T) {
	var b bytes.Buffer
	sent := map[Kind]string{KindInput: "some\x00bytes", KindInputEnd: "", KindOutput: string(make([]byte, MaxData))}
	for _, kind := range []Kind{KindInput, KindInputEnd, KindOutput} {
		if err := Write(&b, kind, []byte(sent[kind])); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []Kind{KindInput, KindInputEnd, KindOutput} {
		kind, data, err := Read(&b)
		if err != nil || kind != want || string(data) != sent[want] {
			t.Errorf("frame %q of %d bytes, %v, want %q", kind, len(data), err, want)
		}
	}
	if _, _, err := Read(&b); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v, want io.EOF", err)
	}
}

func TestFramesAreBounded(t *testing.T) {
	if err := Write(io.Discard, KindOutput, make([]byte, MaxData+1)); err == nil {
		t.Error("a frame that is too long was written")
	}
	for name, data := range map[string]string{
		"too long":     "o\x00\x10\x00\x01",
		"cut in data":  "o\x00\x00\x00\x02x",
		"cut in front": "o\x00",
	} {
		if kind, _, err := Read(bytes.NewReader([]byte(data))); err == nil || err == io.EOF { //nolint:errorlint // the very one
			t.Errorf("%s: read %q, %v", name, kind, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x02ab"))
	f.Add([]byte("o\xff\xff\xff\xffab"))
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, got, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, kind, got); err != nil || !bytes.HasPrefix(data, again.Bytes()) {
			t.Errorf("%q was read as %q %q, %v", data, kind, got, err)
		}
	})
}
