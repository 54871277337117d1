package child

import "bytes"

// maxLine is the longest line that is passed on; longer ones are split.
const maxLine = 4 << 10

// lineWriter calls emit for each line written to it.
type lineWriter struct {
	emit func(line string)
	part []byte // an unfinished line, at most maxLine bytes
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		whole := end >= 0
		if !whole {
			end = len(p)
		}
		if room := maxLine - len(w.part); end > room {
			w.part = append(w.part, p[:room]...)
			p = p[room:]
			w.Flush()
			continue
		}
		w.part = append(w.part, p[:end]...)
		if !whole {
			break
		}
		p = p[end+1:]
		w.Flush()
	}
	return n, nil
}

// Flush emits an unfinished line, unless it is empty.
func (w *lineWriter) Flush() {
	line := Printable(string(bytes.TrimRight(w.part, "\r")))
	w.part = w.part[:0]
	if line != "" {
		w.emit(line)
	}
}
