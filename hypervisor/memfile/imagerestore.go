package memfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

// RestoreImage writes an image back into the memory it was stored from: the same
// number of parts in the same order, with the same sizes. They must have no content
// (Discard), or what the image has. It fails on an image that was changed, truncated,
// reordered, extended, or stored with another key or for other memory; then the content
// is undefined.
//
// The image must hold nothing else and is read to its end. Ctx is checked for
// each record; the image's Read is not interrupted.
func RestoreImage(ctx context.Context, image io.Reader, key Key, memory []Memory) error {
	r, err := newImageReader(image, key, memory)
	if err == nil {
		err = r.restore(ctx)
	}
	if err != nil {
		return fmt.Errorf("restore memory image: %w", err)
	}
	return nil
}

// imageReader reads an image's records into memory.
type imageReader struct {
	from   *bufio.Reader
	cipher recordCipher
	parts  []Memory
	sizes  []uint64
	start  []byte // what the start record must have
	memory uint64 // bytes of memory restored so far

	record []byte // a record as it is read, then its data decrypted
	block  []byte // memory decompressed
}

func newImageReader(image io.Reader, key Key, memory []Memory) (*imageReader, error) {
	c, err := newRecordCipher(key)
	if err != nil {
		return nil, err
	}
	sizes, start, err := memorySizes(memory)
	if err != nil {
		return nil, err
	}
	return &imageReader{
		from: bufio.NewReaderSize(image, imageBuffer), cipher: c, parts: memory, sizes: sizes, start: start,
		record: make([]byte, headerSize+imageBlock+tagSize), block: make([]byte, imageBlock),
	}, nil
}

func (r *imageReader) restore(ctx context.Context) error {
	if err := r.readStart(); err != nil {
		return err
	}
	for done := false; !done; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		number := r.cipher.records
		var err error
		if done, err = r.restoreRecord(number); err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
	}
	return nil
}

// restoreRecord reads the record with that number. It reports whether it was the
// last one.
func (r *imageReader) restoreRecord(number uint64) (bool, error) {
	h, data, err := r.next()
	if err != nil {
		return false, err
	}
	switch h.kind {
	case recordPlain, recordS2:
		return false, r.restoreBlock(h, data)
	case recordEnd:
		return true, r.checkEnd(number, data)
	default:
		return false, fmt.Errorf("it is of kind %d, want a block or the end", h.kind)
	}
}

// readStart checks that it is an image, stored with this key for these files.
func (r *imageReader) readStart() error {
	magic := r.record[:len(imageMagic)]
	if err := r.read(magic); err != nil {
		return err
	}
	if string(magic) != imageMagic {
		return fmt.Errorf("it begins with %q, want %q", magic, imageMagic)
	}
	h, data, err := r.next()
	if err != nil {
		return fmt.Errorf("first record: %w", err)
	}
	if h.kind != recordStart || len(data)%8 != 0 {
		return fmt.Errorf("first record: it is of kind %d with %d bytes, want kind %d", h.kind, len(data), recordStart)
	}
	if !bytes.Equal(data, r.start) {
		return fmt.Errorf("it was stored for memory of %d bytes, want %d", parseSizes(data), r.sizes)
	}
	return nil
}

// next reads and decrypts a record. The data is valid until the next call.
func (r *imageReader) next() (recordHeader, []byte, error) {
	header := r.record[:headerSize]
	if err := r.read(header); err != nil {
		return recordHeader{}, nil, err
	}
	h, err := parseHeader(header)
	if err != nil {
		return h, nil, err
	}
	data := r.record[headerSize:][:h.data+tagSize]
	if err := r.read(data); err != nil {
		return h, nil, err
	}
	data, err = r.cipher.Open(data[:0], r.cipher.next(), data, header)
	if err != nil {
		return h, nil, fmt.Errorf("it was changed, or stored with another key: %w", err)
	}
	return h, data, nil
}

// restoreBlock writes a record's memory to its part.
func (r *imageReader) restoreBlock(h recordHeader, data []byte) error {
	if uint64(h.part) >= uint64(len(r.parts)) {
		return fmt.Errorf("it is for part %d, want one of %d", h.part, len(r.parts))
	}
	if size := r.sizes[h.part]; h.offset > size || uint64(h.memory) > size-h.offset {
		return fmt.Errorf("it is for %d bytes at %d, the memory has %d", h.memory, h.offset, size)
	}
	block, err := r.decompress(h, data)
	if err != nil {
		return err
	}
	r.memory += uint64(len(block))
	return r.parts[h.part].PutBlock(block, int64(h.offset))
}

func (r *imageReader) decompress(h recordHeader, data []byte) ([]byte, error) {
	n := len(data)
	if h.kind == recordS2 {
		var err error
		if n, err = s2.DecodedLen(data); err != nil {
			return nil, err
		}
	}
	if n != int(h.memory) {
		return nil, fmt.Errorf("it has %d bytes of memory, want %d", n, h.memory)
	}
	if h.kind == recordPlain {
		return data, nil
	}
	return s2.Decode(r.block, data)
}

// checkEnd checks the last record, with that number, and that nothing follows.
func (r *imageReader) checkEnd(number uint64, data []byte) error {
	want := binary.LittleEndian.AppendUint64(nil, number)
	want = binary.LittleEndian.AppendUint64(want, r.memory)
	if !bytes.Equal(data, want) {
		return fmt.Errorf("the end's totals are %d, want %d", parseSizes(data), parseSizes(want))
	}
	switch _, err := r.from.ReadByte(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return errors.New("it has data after its last record")
	}
}

// read fills data. An image that ends instead was truncated.
func (r *imageReader) read(data []byte) error {
	_, err := io.ReadFull(r.from, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it was truncated: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// parseSizes reads numbers of 8 bytes, and leaves out a rest.
func parseSizes(data []byte) (sizes []uint64) {
	for ; len(data) >= 8; data = data[8:] {
		sizes = append(sizes, binary.LittleEndian.Uint64(data))
	}
	return sizes
}
