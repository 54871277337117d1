package apitest

import (
	"encoding/binary"
	"io"

	"github.com/katabox/katabox/agent/api"
)

// frames has an output come in frames. There is no file: small blocks need none.
func frames(h *host) {
	h.must("create", h.createWith("c", "x", "y"))
	const file = "/nowhere"
	in, opened := h.open(&api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDIN, OutputFile: file})
	if opened.GetError() != "" || opened.GetFramed() {
		h.Fatalf("an input: %v, want no frames", opened)
	}
	out, opened := h.open(&api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDOUT, OutputFile: file})
	if opened.GetError() != "" || !opened.GetFramed() {
		h.Fatalf("an output: %v, want frames", opened)
	}
	h.must("start", h.start("c", ""))
	h.must("write", h.Write("c", "", "hello"))
	if text := h.frame(out); text != "hello" {
		h.Errorf("frame %q", text)
	}
	h.write(in, "in")
	h.park(&api.ParkedInput{ContainerId: "c", Bytes: 2})
	h.readAs(out, "")
	h.must("write", h.Write("c", "", "kept"))
	// A host that offers no file has no frames.
	next, opened := h.open(&api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDOUT})
	if opened.GetFramed() || opened.GetSent() != 5 {
		h.Errorf("without a file: %v, want 5 bytes sent, and no frames", opened)
	}
	h.readAs(next, "kept")
	h.end()
}

// frame reads an inline frame.
func (h *host) frame(out io.Reader) string {
	h.Helper()
	var header [api.InlineHeader]byte
	_, err := io.ReadFull(out, header[:])
	h.must("read a frame's header", err)
	length := binary.BigEndian.Uint32(header[1:])
	if header[0] != api.FrameInline || length > 100 {
		h.Fatalf("header %v, want an inline frame", header)
	}
	text := make([]byte, length)
	_, err = io.ReadFull(out, text)
	h.must("read a frame", err)
	return string(text)
}
