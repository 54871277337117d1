package config

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// lines is the line, from 1, on which each key and table of a document is
// first named. Names have at most maxParts parts.
type lines map[string]int

// linesOf finds the lines of a document that is valid TOML. (Decoding gives
// values without positions; only the parser's expressions have them.)
func linesOf(doc []byte) lines {
	found := make(lines)
	var (
		parser unstable.Parser
		table  []string
		offset int // everything before it is counted in line
		line   = 1
	)
	parser.Reset(doc)
	for parser.NextExpression() {
		expression := parser.Expression()
		path, at, ok := keyOf(expression)
		if !ok {
			continue
		}
		line += bytes.Count(doc[offset:at], []byte{'\n'})
		offset = at
		if expression.Kind == unstable.KeyValue {
			path = slices.Concat(table, path)
		} else {
			table = path
		}
		found.add(path, line)
	}
	return found
}

// add notes a key and the tables around it, unless they were named before.
func (l lines) add(path []string, line int) {
	for n := 1; n <= min(len(path), maxParts); n++ {
		name := dotted(path[:n])
		if _, known := l[name]; !known {
			l[name] = line
		}
	}
}

// find returns the line of a key or, if it is within an inline table, of the
// nearest table around it.
func (l lines) find(name string) int {
	for {
		line, known := l[name]
		end := strings.LastIndexByte(name, '.')
		if known || end < 0 {
			return max(line, 1)
		}
		name = name[:end]
	}
}

// keyOf returns the first maxParts parts of an expression's key and the offset
// at which it starts; false if the expression has none.
func keyOf(expression *unstable.Node) (path []string, offset int, ok bool) {
	switch expression.Kind {
	case unstable.KeyValue, unstable.Table, unstable.ArrayTable:
	default:
		return nil, 0, false
	}
	for it := expression.Key(); it.Next() && len(path) < maxParts; {
		part := it.Node()
		if len(path) == 0 {
			offset = int(part.Raw.Offset)
		}
		path = append(path, string(part.Data))
	}
	return path, offset, len(path) > 0
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// dotted joins the parts of a key as TOML writes them. A part that is not a
// bare key is quoted, so that no two keys have the same name.
func dotted(path []string) string {
	parts := make([]string, len(path))
	for i, part := range path {
		if !bareKey.MatchString(part) {
			part = strconv.Quote(part)
		}
		parts[i] = part
	}
	return strings.Join(parts, ".")
}
