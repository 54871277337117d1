package timeline

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/katabox/katabox/virtcontainers/printable"
)

// TextOptions describe the terminal for which a timeline is drawn.
type TextOptions struct {
	// Width is in columns; less than 72 is 72.
	Width int
	// Blocks draws with Unicode's block characters instead of ASCII.
	Blocks bool
}

// minWidth is the narrowest drawing, in columns.
const minWidth = 72

const (
	// nameColumns are for the side and the indented name, numberColumns for one
	// number.
	nameColumns, numberColumns = 32, 11
	maxIndent                  = 4
)

// WriteText draws the timeline as lines of text.
func (t *Timeline) WriteText(w io.Writer, o TextOptions) error {
	b := new(strings.Builder)
	fmt.Fprintf(b, "sandbox %s, began %s\n", t.Sandbox, t.Began.Format("2006-01-02 15:04:05.000 MST"))
	for _, line := range t.notes() {
		fmt.Fprintln(b, line)
	}
	bar := max(o.Width, minWidth) - nameColumns - 2*numberColumns - 1
	for _, sec := range t.sections() {
		fmt.Fprintf(b, "\n%-*s%*s%*s\n", nameColumns, clip(sec.title(), nameColumns-1), numberColumns, "start ms", numberColumns, "took ms")
		for _, r := range sec.rows {
			writeRow(b, sec, r, bar, o.Blocks)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// notes say how exact and how complete the timeline is.
func (t *Timeline) notes() []string {
	var notes []string
	if t.GuestError != "" {
		notes = append(notes, "the guest's part is missing: "+printable.Line(t.GuestError))
	} else {
		notes = append(notes, fmt.Sprintf("guest: as the guest reports it, moved to the host's clock, ±%.2f ms", milliseconds(t.Slack)))
	}
	if t.Forgotten > 0 {
		notes = append(notes, fmt.Sprintf("%d spans between the boot's and the last were forgotten", t.Forgotten))
	}
	return notes
}

func writeRow(b *strings.Builder, sec section, r row, width int, blocks bool) {
	name := fmt.Sprintf("%-6s%s%s", r.Side, strings.Repeat(" ", 2*min(r.depth, maxIndent)), r.Name)
	took := ""
	if !r.isEvent() {
		took = fmt.Sprintf("%.1f", milliseconds(r.End-r.Start))
	}
	line := fmt.Sprintf("%-*s%*.1f%*s %s", nameColumns, clip(name, nameColumns-1), numberColumns, milliseconds(r.Start), numberColumns, took,
		bar(sec, r.Start, r.End, width, blocks))
	b.WriteString(strings.TrimRight(line, " "))
	b.WriteByte('\n')
}

// bar draws a span in that many columns, at least one wide.
func bar(sec section, start, end time.Duration, width int, blocks bool) string {
	full, event := "#", "|"
	if blocks {
		full, event = "█", "▏"
	}
	first := min(int(math.Floor(sec.scale(start)*float64(width))), width-1)
	if start == end {
		return strings.Repeat(" ", first) + event
	}
	last := max(int(math.Round(sec.scale(end)*float64(width))), first+1)
	return strings.Repeat(" ", first) + strings.Repeat(full, last-first)
}

// clip shortens a text to that many bytes. Names are ASCII.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n-2] + ".."
}
