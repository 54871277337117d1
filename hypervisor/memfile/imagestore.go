package memfile

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

// StoreImage writes the memory's content to image, in order: compressed and
// encrypted with key. It fails if the data is more than most
// bytes: the memory belongs to a process that may have filled it to fill the
// disk. The image is never larger than most and about a hundredth of it.
//
// The machine must be stopped; what is written to the memory meanwhile may be
// missing. Ctx is checked for each block; the image's
// Write is not interrupted. On error the image is useless.
func StoreImage(ctx context.Context, image io.Writer, key Key, memory []Memory, most uint64) (Stored, error) {
	w, err := newImageWriter(image, key, most)
	if err == nil {
		err = w.store(ctx, memory)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("store memory image: %w", err)
	}
	return w.stored, nil
}

// imageWriter writes records to an image.
type imageWriter struct {
	to     *bufio.Writer
	cipher recordCipher
	most   uint64
	stored Stored

	block  []byte // memory as it is read
	record []byte // a whole record; a block is compressed and encrypted in it
}

func newImageWriter(image io.Writer, key Key, most uint64) (*imageWriter, error) {
	c, err := newRecordCipher(key)
	if err != nil {
		return nil, err
	}
	return &imageWriter{
		to: bufio.NewWriterSize(image, imageBuffer), cipher: c, most: most,
		block: make([]byte, imageBlock), record: make([]byte, maxRecord),
	}, nil
}

func (w *imageWriter) store(ctx context.Context, memory []Memory) error {
	sizes, start, err := memorySizes(memory)
	if err != nil {
		return err
	}
	if err := w.write([]byte(imageMagic)); err != nil {
		return err
	}
	if err := w.writeRecord(recordHeader{kind: recordStart}, start); err != nil {
		return err
	}
	for i, part := range memory {
		if err := w.storePart(ctx, i, part, sizes[i]); err != nil {
			return err
		}
	}
	end := binary.LittleEndian.AppendUint64(nil, w.cipher.records)
	end = binary.LittleEndian.AppendUint64(end, w.stored.Memory)
	if err := w.writeRecord(recordHeader{kind: recordEnd}, end); err != nil {
		return err
	}
	return w.to.Flush()
}

func (w *imageWriter) storePart(ctx context.Context, index int, part Memory, size uint64) error {
	return part.EachBlock(w.block, func(block []byte, at int64) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if end := uint64(at) + uint64(len(block)); end > size {
			return fmt.Errorf("%s has data up to %d, its size was %d", part.Name(), end, size)
		}
		if uint64(len(block)) > w.most-w.stored.Memory {
			return fmt.Errorf("the memory has more than %d bytes of data, which is the most allowed", w.most)
		}
		w.stored.Memory += uint64(len(block))
		return w.storeBlock(index, block, at)
	})
}

// storeBlock writes a block compressed, or as it is if that is not smaller.
func (w *imageWriter) storeBlock(index int, block []byte, at int64) error {
	kind, data := byte(recordS2), s2.Encode(w.record[headerSize:], block)
	if len(data) >= len(block) {
		kind, data = recordPlain, block
	}
	return w.writeRecord(recordHeader{kind: kind, part: uint32(index), offset: uint64(at), memory: uint32(len(block))}, data)
}

// writeRecord encrypts data and writes it. Data may be in w.record already,
// behind the header.
func (w *imageWriter) writeRecord(h recordHeader, data []byte) error {
	h.data = uint32(len(data))
	header := h.append(w.record[:0])
	return w.write(w.cipher.Seal(header, w.cipher.next(), data, header))
}

func (w *imageWriter) write(data []byte) error {
	n, err := w.to.Write(data)
	w.stored.Image += uint64(n)
	return err
}
