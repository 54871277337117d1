package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// board is what is drawn of a dashboard of Grafana.
type board struct {
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	Title   string                   `json:"title"`
	Type    string                   `json:"type"`
	Pos     struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
	Field struct {
		Defaults struct{ Unit string } `json:"defaults"`
	} `json:"fieldConfig"`
}

func readBoard(path string) (*board, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var b board
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	return &b, nil
}

// variable matches a variable of the dashboard in an expression; all its variables
// can match everything.
var variable = regexp.MustCompile(`\$\w+`)

// line is a series with its legend.
type line struct {
	name   string
	points []point
}

// lines evaluates a panel's queries.
func (p *panel) lines(ctx context.Context, source *prometheus, from, to time.Time) ([]line, error) {
	var lines []line
	for _, t := range p.Targets {
		found, err := source.query(ctx, variable.ReplaceAllString(t.Expr, ".*"), from, to)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("panel %q: the query %s has no result", p.Title, t.Expr)
		}
		for _, s := range found {
			lines = append(lines, line{legend(t.Legend, s.Labels), s.Values})
		}
	}
	return lines, nil
}

// legend fills in the labels of a template such as "{{pod}} received".
func legend(template string, labels map[string]string) string {
	for name, value := range labels {
		template = strings.ReplaceAll(template, "{{"+name+"}}", value)
	}
	return template
}

// draw evaluates all queries and returns the picture.
func (b *board) draw(ctx context.Context, source *prometheus, from, to time.Time) (string, error) {
	pic := newPicture(b)
	for i := range b.Panels {
		p := &b.Panels[i]
		lines, err := p.lines(ctx, source, from, to)
		if err != nil {
			return "", err
		}
		pic.panel(p, lines, from, to)
	}
	return pic.end(), nil
}
