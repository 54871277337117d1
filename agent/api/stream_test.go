package api

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

func TestFrameRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	want := &StreamOpen{ContainerId: "c1", ExecId: "e1", Stream: Stream_STREAM_STDOUT}
	if err := WriteFrame(&buf, want); err != nil {
		t.Fatal(err)
	}
	buf.WriteString("payload")
	var got StreamOpen
	if err := ReadFrame(&buf, &got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, want) {
		t.Fatalf("got %v, want %v", &got, want)
	}
	if rest, _ := io.ReadAll(&buf); string(rest) != "payload" {
		t.Fatalf("stream bytes after the frame: %q", rest)
	}
}

func TestFrameBounds(t *testing.T) {
	if err := WriteFrame(io.Discard, &StreamOpen{ContainerId: strings.Repeat("x", MaxFrame)}); err == nil {
		t.Error("an oversized frame was written")
	}
	if err := ReadFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}), new(StreamOpen)); err == nil {
		t.Error("an oversized frame was read")
	}
}

func FuzzReadFrame(f *testing.F) {
	var buf bytes.Buffer
	_ = WriteFrame(&buf, &StreamOpened{Error: "no such container"})
	f.Add(buf.Bytes())
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = ReadFrame(bytes.NewReader(data), new(StreamOpened))
		_ = ReadFrame(bytes.NewReader(data), new(StreamOpen))
	})
}
