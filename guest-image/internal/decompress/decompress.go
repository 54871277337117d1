package decompress

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/pierrec/lz4/v4"
)

// Format is a compression format.
type Format string

// The formats. Unknown means that the data is in none of them.
const (
	Unknown Format = ""
	None    Format = "none"
	Gzip    Format = "gzip"
	Bzip2   Format = "bzip2"
	LZ4     Format = "lz4"
	XZ      Format = "xz"
	Zstd    Format = "zstd"
	LZMA    Format = "lzma"
	LZO     Format = "lzo"
)

// ErrUnsupported means that data is in a format that is recognized but not
// decoded.
var ErrUnsupported = errors.New("unsupported compression (supported: gzip, bzip2, lz4, xz, zstd)")

// magics are the first bytes of each format: kernel lib/decompress.c,
// and the ELF magic for data that is not compressed.
var magics = []struct {
	prefix string
	format Format
}{
	{"\x7fELF", None},
	{"\x1f\x8b", Gzip},
	{"BZh", Bzip2},
	{"\x02\x21\x4c\x18", LZ4},
	{"\xfd7zXZ\x00", XZ},
	{"\x28\xb5\x2f\xfd", Zstd},
	{"\x5d\x00\x00", LZMA},
	{"\x89LZO", LZO},
}

// Detect detects data's format by its first bytes. None is an ELF file.
func Detect(data []byte) Format {
	for _, m := range magics {
		if bytes.HasPrefix(data, []byte(m.prefix)) {
			return m.format
		}
	}
	return Unknown
}

// Bytes decompresses data, whose output must not be longer than limit bytes.
// Data of format None is returned as it is.
func Bytes(ctx context.Context, data []byte, limit int64) ([]byte, error) {
	format := Detect(data)
	var out []byte
	var err error
	switch format {
	case None:
		return data, nil
	case XZ:
		out, err = tool(ctx, data, limit, "xz-utils", "xz", "-dc", "--single-stream")
	case Zstd:
		out, err = tool(ctx, data, limit, "zstd", "zstd", "-dcq")
	default:
		out, err = stream(format, data, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress %s data: %w", format, err)
	}
	return out, nil
}

func stream(format Format, data []byte, limit int64) ([]byte, error) {
	var r io.Reader = bytes.NewReader(data)
	switch format {
	case Gzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		z.Multistream(false)
		r = z
	case Bzip2:
		r = bzip2.NewReader(r)
	case LZ4:
		r = lz4.NewReader(r)
	default:
		return nil, ErrUnsupported
	}
	return readAll(r, limit)
}

// readAll reads r to its end and fails if it is longer than limit.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var out bytes.Buffer
	if _, err := io.Copy(&out, io.LimitReader(r, limit+1)); err != nil {
		return nil, err
	}
	if int64(out.Len()) > limit {
		return nil, fmt.Errorf("output is longer than %d bytes", limit)
	}
	return out.Bytes(), nil
}

// waitDelay bounds the wait for the children of a tool that has ended.
const waitDelay = 5 * time.Second

// tool pipes data through a program of the host.
func tool(ctx context.Context, data []byte, limit int64, debian, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = waitDelay
	cmd.Stdin = bytes.NewReader(data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: `apt-get install %s`: %w", name, debian, err)
	}
	result, readErr := readAll(out, limit)
	if readErr != nil {
		cancel() // the tool may be waiting to write
		_ = out.Close()
	}
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return result, nil
}
