package image

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"github.com/katabox/katabox/standalone/store"
)

// zstdMemory bounds what decoding one layer may need.
const zstdMemory = 256 << 20

// layerOf converts a layer of the library to one of the store. Bytes are counted
// if the size is known: that of the layer as it is stored, mostly compressed.
func layerOf(l v1.Layer, diffID digest.Digest, sized bool) (store.Layer, error) {
	layer := store.Layer{DiffID: diffID}
	if !sized {
		layer.Open = func(moved func(int)) (io.ReadCloser, error) {
			in, err := l.Uncompressed()
			if err != nil {
				return nil, err
			}
			return readCloser{Reader: counted{in, moved}, close: in.Close}, nil
		}
		return layer, nil
	}
	size, err := l.Size()
	if err != nil {
		return layer, err
	}
	layer.Size = size
	layer.Open = func(moved func(int)) (io.ReadCloser, error) {
		in, err := l.Compressed()
		if err != nil {
			return nil, err
		}
		out, err := decompressed(counted{in, moved})
		if err != nil {
			_ = in.Close()
			return nil, err
		}
		return readCloser{Reader: out, close: func() error { out.Close(); return in.Close() }}, nil
	}
	return layer, nil
}

// counted reports how much was read.
type counted struct {
	io.Reader
	moved func(int)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.moved(n)
	return n, err
}

// decompressed undoes gzip or zstd, detected by the first bytes: media types are
// often wrong.
func decompressed(in io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	magic, _ := b.Peek(4) // shorter data is neither
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return z, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(zstdMemory))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
