package memfile

import (
	"fmt"
	"os"
)

func discard(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("discard memory: %w", err)
	}
	if info.Size() == 0 {
		return nil // fallocate refuses a length of 0
	}
	// Part of a page is set to zero and not freed, so the last page is taken whole.
	length := (info.Size() + pageSize - 1) / pageSize * pageSize
	if err := punch(file, 0, length); err != nil {
		return fmt.Errorf("discard memory: %w", err)
	}
	return nil
}
