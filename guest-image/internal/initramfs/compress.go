package initramfs

import (
	"bytes"
	"fmt"

	"github.com/pierrec/lz4/v4"
)

// CompressLZ4 packs an archive so that the kernel can unpack it: the legacy
// frame is the only LZ4 format it reads (lib/decompress_unlz4.c). The same
// archive gives the same bytes.
func CompressLZ4(archive []byte) ([]byte, error) {
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	err := w.Apply(
		lz4.LegacyOption(true),
		lz4.CompressionLevelOption(lz4.Level9),
		lz4.ConcurrencyOption(1))
	if err != nil {
		return nil, fmt.Errorf("set up lz4: %w", err)
	}
	if _, err := w.Write(archive); err != nil {
		return nil, fmt.Errorf("compress archive: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress archive: %w", err)
	}
	return out.Bytes(), nil
}
