package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/console"
)

// redrawPause is the time between two pictures of the bar.
const redrawPause = 100 * time.Millisecond

// barWidth is the bar's, in columns.
const barWidth = 30

// progress shows how far the unpacking of an image is: a bar on a terminal, one
// line elsewhere. It shows nothing of an image of which nothing is unpacked.
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
	p := &progress{to: to, image: image}
	if f, ok := to.(*os.File); ok {
		_, err := console.ConsoleFromFile(f)
		p.terminal = err == nil
	}
	return p
}

// Layer begins a layer.
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

// draw draws the bar over the last one.
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

// end takes the bar away.
func (p *progress) end() {
	if p.terminal && p.said {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
