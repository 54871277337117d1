package decompress

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
)

const text = "\x7fELF and what follows it"

// packedText is text, as bzip2, xz and zstd pack it.
var packedText = map[Format]string{
	Bzip2: "QlpoOTFBWSZTWfrVGKQAAAuVgEAAAwQlZYyAoAAij1DagemoUwAE0CRZJ4g7NqRm7iJ+LuSKcKEh9aoxSA==",
	XZ:    "/Td6WFoAAAFpIt42AgAhARYAAAB0L+WjAQAXf0VMRiBhbmQgd2hhdCBmb2xsb3dzIGl0AJbbW88AASwY00bbCpBCmQ0BAAAAAAFZWg==",
	Zstd:  "KLUv/QRYwQAAf0VMRiBhbmQgd2hhdCBmb2xsb3dzIGl0y0Asow==",
}

func unpackBase64(t *testing.T, s string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fixtures(t *testing.T) map[Format][]byte {
	t.Helper()
	var gz, lz bytes.Buffer
	legacy := lz4.NewWriter(&lz)
	if err := legacy.Apply(lz4.LegacyOption(true)); err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{gzip.NewWriter(&gz), legacy} {
		_, writeErr := io.WriteString(w, text)
		if err := errors.Join(writeErr, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	out := map[Format][]byte{Gzip: gz.Bytes(), LZ4: lz.Bytes(), None: []byte(text)}
	for format, packed := range packedText {
		out[format] = unpackBase64(t, packed)
	}
	return out
}

// need skips the test if the host lacks the tool of a format.
func need(t *testing.T, format Format) {
	t.Helper()
	if format != XZ && format != Zstd {
		return
	}
	if _, err := exec.LookPath(string(format)); err != nil {
		t.Skipf("the host has no %s", format)
	}
}

func TestBytes(t *testing.T) {
	for format, packed := range fixtures(t) {
		t.Run(string(format), func(t *testing.T) {
			if got := Detect(packed); got != format {
				t.Fatalf("taken for %q", got)
			}
			need(t, format)
			got, err := Bytes(t.Context(), packed, int64(len(text)))
			if err != nil || string(got) != text {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestBytesErrors(t *testing.T) {
	for format, packed := range fixtures(t) {
		if format == None {
			continue
		}
		t.Run(string(format), func(t *testing.T) {
			need(t, format)
			if got, err := Bytes(t.Context(), packed, int64(len(text))-1); err == nil || !strings.Contains(err.Error(), "longer than") {
				t.Errorf("beyond the limit: %q, %v", got, err)
			}
			if got, err := Bytes(t.Context(), packed[:len(packed)-9], 1<<20); err == nil {
				t.Errorf("cut: %q and no error", got)
			}
		})
	}
}

func TestBytesUnsupported(t *testing.T) {
	for _, data := range []string{"", "text", "\x89LZO\x00", "\x5d\x00\x00\x00"} {
		if _, err := Bytes(t.Context(), []byte(data), 100); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: error %v, want ErrUnsupported", data, err)
		}
	}
}

func TestMissingToolNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for format, want := range map[Format]string{XZ: "apt-get install xz-utils", Zstd: "apt-get install zstd"} {
		_, err := Bytes(t.Context(), unpackBase64(t, packedText[format]), 100)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%s: error %v, want %q", format, err, want)
		}
	}
}
