package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/console"
)

// redrawPause is the time between two redraws of the bar.
const redrawPause = 100 * time.Millisecond

// barWidth is the bar's width, in columns.
const barWidth = 30

// progress shows the progress of unpacking an image: a bar on a terminal,
// otherwise one line. If nothing has to be unpacked it shows nothing.
type progress struct {
	to       io.Writer
	terminal bool
	image    string

	n, all      int
	size, moved int64
	drawn       time.Time
	said        bool
}

func newProgress(to io.Writer, image string) *progress {
	return &progress{to: to, image: image, terminal: IsTerminal(to)}
}

// IsTerminal reports whether an output of this process is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := console.ConsoleFromFile(f)
	return err == nil
}

// Layer starts a layer.
func (p *progress) Layer(n, all int, size int64) {
	p.n, p.all, p.size, p.moved = n, all, size, 0
	if !p.said && !p.terminal {
		fmt.Fprintf(p.to, "kata-runtime: unpacking %s: %d layers\n", p.image, all)
	}
	p.said = true
	p.draw()
}

// Moved counts bytes.
func (p *progress) Moved(n int) {
	p.moved += int64(n)
	if time.Since(p.drawn) >= redrawPause {
		p.draw()
	}
}

// draw draws the bar over the previous one.
func (p *progress) draw() {
	if !p.terminal {
		return
	}
	p.drawn = time.Now()
	bar, of := "", ""
	if p.size > 0 {
		filled := int(min(p.moved, p.size) * barWidth / p.size)
		bar = " [" + strings.Repeat("=", filled) + strings.Repeat(" ", barWidth-filled) + "]"
		of = fmt.Sprintf(" of %.1f", megabytes(p.size))
	}
	fmt.Fprintf(p.to, "\r\x1b[Klayer %d of %d%s %.1f%s MB", p.n, p.all, bar, megabytes(p.moved), of)
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// end removes the bar.
func (p *progress) end() {
	if p.terminal && p.said {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
