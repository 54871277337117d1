package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Kind says what a frame is.
type Kind byte

// The kinds. Data is JSON where a type is named, else raw bytes.
const (
	KindHello    Kind = 'h' // Hello
	KindRun      Kind = 'r' // Command
	KindInput    Kind = 'i' // standard input
	KindInputEnd Kind = 'e'
	KindOutput   Kind = 'o' // standard output, or all of a terminal's
	KindErrors   Kind = 'E' // standard error
	KindExit     Kind = 'x' // Exit
	KindPowerOff Kind = 'q'
	KindBeat     Kind = 'b' // the machine is alive; no data
)

// MaxData bounds the data of one frame, in bytes.
const MaxData = 1 << 20

// headerSize is the kind and the length of the data, big endian.
const headerSize = 5

// Hello describes the machine, and what it lacks.
type Hello struct {
	// Kernel is the kernel's release.
	Kernel string `json:"kernel"`
	// Problems are sentences; empty if nothing is missing.
	Problems []string `json:"problems,omitempty"`
}

// Command is a program to run.
type Command struct {
	Args []string `json:"args"`
	// Env is the whole environment.
	Env []string `json:"env"`
	Dir string   `json:"dir"`
	// Terminal gives it a terminal of Rows and Columns.
	Terminal bool   `json:"terminal,omitempty"`
	Rows     uint16 `json:"rows,omitempty"`
	Columns  uint16 `json:"columns,omitempty"`
}

// Exit is how a command ended.
type Exit struct {
	// Code is its exit code, or 128 and the signal; 127 if it did not start.
	Code int `json:"code"`
	// Problem says why it did not start or could not be waited for.
	Problem string `json:"problem,omitempty"`
}

// Write writes one frame with one call of w.Write.
func Write(w io.Writer, kind Kind, data []byte) error {
	if len(data) > MaxData {
		return fmt.Errorf("write frame %q: %d bytes, want at most %d", kind, len(data), MaxData)
	}
	frame := make([]byte, headerSize, headerSize+len(data))
	frame[0] = byte(kind)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(data)))
	if _, err := w.Write(append(frame, data...)); err != nil {
		return fmt.Errorf("write frame %q: %w", kind, err)
	}
	return nil
}

// WriteJSON writes one frame with v as its data.
func WriteJSON(w io.Writer, kind Kind, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write frame %q: %w", kind, err)
	}
	return Write(w, kind, data)
}

// Read reads one frame. The error is io.EOF at the end of r.
func Read(r io.Reader) (Kind, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if err == io.EOF { // a truncated frame is io.ErrUnexpectedEOF
			return 0, nil, err
		}
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	kind, size := Kind(header[0]), binary.BigEndian.Uint32(header[1:])
	if size > MaxData {
		return 0, nil, fmt.Errorf("read frame %q: %d bytes, want at most %d", kind, size, MaxData)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, fmt.Errorf("read frame %q of %d bytes: %w", kind, size, err)
	}
	return kind, data, nil
}
