package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// graph is a panel's plane: where it is, in pixels, and what its edges mean.
type graph struct {
	pic        *picture
	x, y, w, h float64
	from, to   time.Time
	most       float64
}

// atX and atY are the pixels of a time, in seconds, and of a value.
func (g *graph) atX(at float64) float64 {
	from := float64(g.from.UnixMilli()) / 1000
	return g.x + g.w*(at-from)/g.to.Sub(g.from).Seconds()
}

func (g *graph) atY(value float64) float64 { return g.y + g.h*(1-value/g.most) }

// axes draws the lines of the grid with their values and times.
func (g *graph) axes(unit string) {
	const rows = 4
	for i := range rows + 1 {
		value := g.most * float64(i) / rows
		y := g.atY(value)
		fmt.Fprintf(g.pic, `<path d="M%.0f %.1fh%.0f" stroke="#e4e7ea"/>`+"\n", g.x, y, g.w)
		g.pic.text(g.x-6, y+4, "end", "", format(unit, value))
	}
	step := max(g.to.Sub(g.from)/5, time.Minute).Truncate(time.Minute)
	for at := g.from.Truncate(step).Add(step); at.Before(g.to); at = at.Add(step) {
		x := g.atX(float64(at.Unix()))
		fmt.Fprintf(g.pic, `<path d="M%.1f %.0fv%.0f" stroke="#e4e7ea"/>`+"\n", x, g.y, g.h)
		g.pic.text(x, g.y+g.h+15, "middle", "", at.UTC().Format("15:04"))
	}
}

// line draws points; it has a gap where there is no number.
func (g *graph) line(points []point, colour string) {
	var path strings.Builder
	pen := "M"
	for _, p := range points {
		if math.IsNaN(p.value) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, g.atX(p.at), g.atY(p.value))
		pen = "L"
	}
	fmt.Fprintf(g.pic, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colour)
}

// format writes a value in a unit of Grafana's.
func format(unit string, value float64) string {
	switch unit {
	case "bytes", "Bps":
		suffix := map[string]string{"bytes": "", "Bps": "/s"}[unit]
		for i, name := range []string{"B", "KiB", "MiB", "GiB"} {
			if scaled := value / math.Pow(1024, float64(i)); scaled < 1024 || name == "GiB" {
				return fmt.Sprintf("%.4g %s%s", scaled, name, suffix)
			}
		}
	case "s", "ms":
		return fmt.Sprintf("%.4g %s", value, unit)
	}
	return fmt.Sprintf("%.3g", value)
}
