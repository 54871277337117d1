package checkpoint

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/s2"
	"github.com/minio/sio"
)

// File is the name of the file in a checkpoint's directory.
const File = "sandbox.katabox"

// magic begins a file. Its last byte is the format's version.
const magic = "katabox sandbox\x00\x01"

// How the rest of the file is stored.
const (
	plain  byte = 0
	sealed byte = 1
)

const (
	saltSize = 32
	keySize  = 32
)

// Key encrypts files; nil is none. Each file has a key of its own that is derived
// from it.
type Key []byte

// derive returns a file's key.
func (k Key) derive(salt []byte) ([]byte, error) {
	return hkdf.Key(sha256.New, k, salt, "katabox checkpoint", keySize)
}

func config(key []byte) sio.Config { return sio.Config{Key: key, MinVersion: sio.Version20} }

// Writer writes a file.
type Writer struct {
	to   *s2.Writer
	seal io.Closer // nil if the file is not encrypted
}

// Create begins a file. Close must follow, which does not close to.
func Create(to io.Writer, key Key, rec Record) (*Writer, error) {
	text, err := rec.encode()
	if err != nil {
		return nil, fmt.Errorf("write checkpoint: %w", err)
	}
	w, err := begin(to, key)
	if err == nil {
		_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	if err != nil {
		return nil, fmt.Errorf("write checkpoint: %w", err)
	}
	return w, nil
}

func begin(to io.Writer, key Key) (*Writer, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	kind := plain
	if key != nil {
		kind = sealed
	}
	if _, err := to.Write(append(append([]byte(magic), kind), salt...)); err != nil {
		return nil, err
	}
	w := &Writer{}
	if key != nil {
		own, err := key.derive(salt)
		if err != nil {
			return nil, err
		}
		seal, err := sio.EncryptWriter(onlyWriter{to}, config(own))
		if err != nil {
			return nil, err
		}
		to, w.seal = seal, seal
	}
	w.to = s2.NewWriter(to, s2.WriterConcurrency(1))
	return w, nil
}

// onlyWriter hides the Close of what it writes to: sio's writer would call it.
type onlyWriter struct{ io.Writer }

// Write adds to the machine's state.
func (w *Writer) Write(state []byte) (int, error) { return w.to.Write(state) }

// ReadFrom adds all of r to the machine's state.
func (w *Writer) ReadFrom(r io.Reader) (int64, error) { return w.to.ReadFrom(r) }

// Close ends the file.
func (w *Writer) Close() error {
	err := w.to.Close()
	if w.seal != nil {
		err = errors.Join(err, w.seal.Close())
	}
	return err
}

// Reader reads a file.
type Reader struct {
	Record Record

	from io.Reader
}

// Open reads a file up to its machine's state. It fails with
// errdefs.ErrInvalidArgument for a file that is none, or damaged, and with
// errdefs.ErrFailedPrecondition for one that needs another key.
func Open(from io.Reader, key Key) (*Reader, error) {
	r, err := open(from, key)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return r, nil
}

func open(from io.Reader, key Key) (*Reader, error) {
	head := make([]byte, len(magic)+1+saltSize)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, damaged(err)
	}
	if !bytes.HasPrefix(head, []byte(magic)) {
		return nil, fmt.Errorf("it begins with %q, want %q: %w", head[:len(magic)], magic, errdefs.ErrInvalidArgument)
	}
	from, err := unseal(from, key, head[len(magic)], head[len(magic)+1:])
	if err != nil {
		return nil, err
	}
	r := &Reader{from: s2.NewReader(from)}
	return r, r.readRecord()
}

// unseal returns what is stored after the head.
func unseal(from io.Reader, key Key, kind byte, salt []byte) (io.Reader, error) {
	switch {
	case kind == plain && key == nil:
		return from, nil
	case kind == plain:
		return nil, fmt.Errorf("it is not encrypted, and there is a key (runtime.checkpoint_key_file): %w", errdefs.ErrFailedPrecondition)
	case kind != sealed:
		return nil, fmt.Errorf("it is stored in way %d, want %d or %d: %w", kind, plain, sealed, errdefs.ErrInvalidArgument)
	case key == nil:
		return nil, fmt.Errorf("it is encrypted, and there is no key (runtime.checkpoint_key_file): %w", errdefs.ErrFailedPrecondition)
	}
	own, err := key.derive(salt)
	if err != nil {
		return nil, err
	}
	return sio.DecryptReader(from, config(own))
}

func (r *Reader) readRecord() error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxRecord {
		return fmt.Errorf("its record has %d bytes, want at most %d: %w", n, maxRecord, errdefs.ErrInvalidArgument)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.Record); err != nil {
		return fmt.Errorf("its record: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Read reads the machine's state.
func (r *Reader) Read(state []byte) (int, error) {
	n, err := r.from.Read(state)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}

// damaged adds what an error of reading means.
func damaged(err error) error {
	var changed sio.Error
	switch {
	case errors.As(err, &changed):
		return fmt.Errorf("it was changed, or saved with another key (runtime.checkpoint_key_file): %w: %w", err, errdefs.ErrFailedPrecondition)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it was truncated: %w: %w", io.ErrUnexpectedEOF, errdefs.ErrInvalidArgument)
	case errors.Is(err, s2.ErrCorrupt), errors.Is(err, s2.ErrCRC), errors.Is(err, s2.ErrUnsupported):
		return fmt.Errorf("it is damaged: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return err
}
