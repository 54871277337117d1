package timeline

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The SVG's measures, in pixels.
const (
	svgWidth, svgRow         = 1100, 18
	svgNames, svgStart, took = 12, 330, 400
	svgBars                  = 420
	svgIndent, svgMargin     = 12, 12
	svgLeast                 = 1.5 // so that a short span can be seen
)

// The colours of the two sides.
const hostColour, guestColour = "#3f6fa3", "#c9762b"

// WriteSVG draws the timeline as an SVG that needs no other file.
func (t *Timeline) WriteSVG(w io.Writer) error {
	sections, notes := t.sections(), t.notes()
	lines := 1 + len(notes)
	for _, sec := range sections {
		lines += 2 + len(sec.rows)
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		svgWidth, (lines+1)*svgRow)
	fmt.Fprintln(b, `<rect width="100%" height="100%" fill="#ffffff"/>`)
	line := 1
	text(b, svgNames, line, "bold", "start", fmt.Sprintf("sandbox %s, began %s", t.Sandbox, t.Began.Format("2006-01-02 15:04:05.000 MST")))
	for _, note := range notes {
		line++
		text(b, svgNames, line, "normal", "start", note)
	}
	for _, sec := range sections {
		line += 2
		drawSection(b, sec, line)
		line += len(sec.rows)
	}
	fmt.Fprintln(b, "</svg>")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write SVG: %w", err)
	}
	return nil
}

func drawSection(b *strings.Builder, sec section, line int) {
	text(b, svgNames, line, "bold", "start", sec.title())
	text(b, svgStart, line, "bold", "end", "start ms")
	text(b, took, line, "bold", "end", "took ms")
	for i, r := range sec.rows {
		drawRow(b, sec, r, line+1+i)
	}
}

func drawRow(b *strings.Builder, sec section, r row, line int) {
	const width = svgWidth - svgBars - svgMargin
	text(b, svgNames+svgIndent*min(r.depth, maxIndent), line, "normal", "start", fmt.Sprintf("%s: %s", r.Side, r.Name))
	text(b, svgStart, line, "normal", "end", fmt.Sprintf("%.1f", milliseconds(r.Start)))
	if !r.isEvent() {
		text(b, took, line, "normal", "end", fmt.Sprintf("%.1f", milliseconds(r.End-r.Start)))
	}
	colour := hostColour
	if r.Side == Guest {
		colour = guestColour
	}
	start, end := sec.scale(r.Start)*width, sec.scale(r.End)*width
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
		svgBars+min(start, width-svgLeast), line*svgRow-svgRow+5, max(end-start, svgLeast), svgRow-4, colour)
}

// text writes one line of text; anchor is SVG's text-anchor.
func text(b *strings.Builder, x, line int, weight, anchor, content string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="%s" text-anchor="%s">`, x, line*svgRow, weight, anchor)
	_ = xml.EscapeText(b, []byte(content)) // writing to a strings.Builder never fails
	b.WriteString("</text>\n")
}
