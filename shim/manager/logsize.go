package manager

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// How large a log is that is a file, and how much of it is kept when it is larger. Such
// a log is usually in the host's memory, below /run, and its budget alone would let a
// guest write 690 MB a day.
const (
	maxLogFile  = 8 << 20 // bytes
	keptLogFile = maxLogFile / 2
)

// makeRoom removes the older lines of a log that is a file and has no room for n bytes
// more. It reports false if it cannot. The file stays the same, because others have it
// open too: the crash output, the "start" of the pod's other containers, readers.
func (w lossyWriter) makeRoom(n int) bool {
	var info unix.Stat_t
	if err := unix.Fstat(int(w), &info); err != nil {
		return false
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG || info.Size+int64(n) <= maxLogFile {
		return true
	}
	return w.trim(info.Size)
}

// trim removes the older lines of a log that had that size. It reports false if it cannot.
func (w lossyWriter) trim(size int64) bool {
	kept := make([]byte, min(keptLogFile, size))
	read, err := unix.Pread(int(w), kept, size-int64(len(kept)))
	if err != nil {
		read = 0
	} else if read < len(kept) {
		return true // another has just trimmed it
	}
	_, kept, _ = bytes.Cut(kept[:read], []byte("\n")) // from the start of a line
	if err := unix.Ftruncate(int(w), 0); err != nil {
		return false
	}
	removed := fmt.Sprintf("time=%q level=info msg=\"%d bytes of older lines were removed from this log, which has at most %d MiB\"\n",
		time.Now().Format(time.RFC3339Nano), size-int64(len(kept)), maxLogFile>>20)
	_, _ = unix.Write(int(w), append([]byte(removed), kept...))
	return true
}
