package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Measures, in pixels: of the grid's unit and of a panel's parts.
const (
	unitX, unitY    = 50, 30
	gap, head       = 8, 40
	axisLeft, axisY = 70, 44 // right of the values, above times and legend
)

// colours are those of a panel's lines, in order.
var colours = []string{"#3f6fa3", "#c9762b", "#4b8b3b", "#a33f6f", "#7a5fb0", "#8a7a2b", "#2b8a8a", "#b04040", "#606060", "#b08ad0"}

// picture is an SVG that is being written.
type picture struct{ strings.Builder }

func newPicture(b *board) *picture {
	height := 0
	for _, p := range b.Panels {
		height = max(height, (p.Pos.Y+p.Pos.H)*unitY)
	}
	pic := new(picture)
	fmt.Fprintf(pic, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", 24*unitX, height+head)
	fmt.Fprintln(pic, `<rect width="100%" height="100%" fill="#f4f5f5"/>`)
	pic.text(gap, 26, "start", `font-size="18"`, b.Title)
	return pic
}

func (pic *picture) end() string {
	fmt.Fprintln(pic, "</svg>")
	return pic.String()
}

// text writes a line of text; anchor is SVG's text-anchor.
func (pic *picture) text(x, y float64, anchor, more, content string) {
	fmt.Fprintf(pic, `<text x="%.0f" y="%.0f" text-anchor="%s" fill="#24292e" %s>`, x, y, anchor, more)
	_ = xml.EscapeText(pic, []byte(content)) // writing to a strings.Builder never fails
	fmt.Fprintln(pic, "</text>")
}

// panel draws a panel: one number, or a graph.
func (pic *picture) panel(p *panel, lines []line, from, to time.Time) {
	x, y := float64(p.Pos.X*unitX+gap/2), float64(p.Pos.Y*unitY+head)
	w, h := float64(p.Pos.W*unitX-gap), float64(p.Pos.H*unitY-gap)
	fmt.Fprintf(pic, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="#ffffff" stroke="#d8dbde"/>`+"\n", x, y, w, h)
	pic.text(x+10, y+19, "start", `font-size="13" font-weight="bold"`, p.Title)
	if p.Type == "stat" {
		last := lines[0].points[len(lines[0].points)-1].value
		pic.text(x+w/2, y+h/2+28, "middle", `font-size="34"`, format(p.Field.Defaults.Unit, last))
		return
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.name, b.name) })
	g := graph{pic: pic, x: x + axisLeft, y: y + 30, w: w - axisLeft - 12, h: h - 30 - axisY, from: from, to: to, most: top(p.Field.Defaults.Unit, lines)}
	g.axes(p.Field.Defaults.Unit)
	for i, l := range lines {
		g.line(l.points, colours[i%len(colours)])
	}
	pic.legend(x+10, y+h-8, w-20, lines)
}

// legend writes the lines' names below a graph, as many as fit.
func (pic *picture) legend(x, y, w float64, lines []line) {
	const letter, box = 6.0, 22.0
	end := x + w
	for i, l := range lines {
		if x+box+letter*float64(len(l.name)) > end {
			pic.text(x, y, "start", "", "...")
			return
		}
		fmt.Fprintf(pic, `<rect x="%.0f" y="%.0f" width="12" height="4" fill="%s"/>`+"\n", x, y-6, colours[i%len(colours)])
		pic.text(x+16, y, "start", "", l.name)
		x += box + letter*float64(len(l.name))
	}
}

// top is a round number, in its unit, that no value exceeds.
func top(unit string, lines []line) float64 {
	most := 0.0
	for _, l := range lines {
		for _, p := range l.points {
			if !math.IsNaN(p.value) {
				most = max(most, p.value)
			}
		}
	}
	if most == 0 {
		return 1
	}
	prefix := 1.0
	for unit == "bytes" || unit == "Bps" {
		if most < 1024*prefix {
			break
		}
		prefix *= 1024
	}
	base := prefix * math.Pow(10, math.Floor(math.Log10(most/prefix)))
	for _, factor := range []float64{1, 2, 4, 6, 8} {
		if most <= factor*base {
			return factor * base
		}
	}
	return 10 * base
}
