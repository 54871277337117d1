package memfile

import (
	"bytes"
	"os"
)

// pageSize is the unit in which memory is a hole or data.
const pageSize = 4096

var zeroPage [pageSize]byte

// writeBlock writes a block without its pages of zeros, which stay holes. Blocks
// begin at a page's start, as holes end there.
func writeBlock(file *os.File, block []byte, at int64) error {
	for len(block) > 0 {
		zeros := leadingPages(block, true)
		data := leadingPages(block[zeros:], false)
		if data > 0 {
			if _, err := file.WriteAt(block[zeros:zeros+data], at+int64(zeros)); err != nil {
				return err
			}
		}
		block, at = block[zeros+data:], at+int64(zeros+data)
	}
	return nil
}

// leadingPages returns how many bytes at the block's start are pages of zeros,
// or are pages of data.
func leadingPages(block []byte, zeros bool) (n int) {
	for n < len(block) {
		page := block[n:min(n+pageSize, len(block))]
		if bytes.Equal(page, zeroPage[:len(page)]) != zeros {
			break
		}
		n += len(page)
	}
	return n
}
