package procstat

import (
	"iter"
	"math"
	"strconv"
	"strings"
)

// Item is one number.
type Item struct {
	// Device is the CPU, the disk or the interface that the number is about, or
	// empty.
	Device string
	Name   string
	Value  float64
}

const (
	// maxItems bounds the numbers of one file.
	maxItems = 512
	// maxName bounds a name, in bytes.
	maxName = 64
)

// add appends an item, unless there are too many, or its name or value is
// invalid.
func add(items []Item, device, name, value string) []Item {
	v, ok := parseNumber(value)
	if !ok || len(items) >= maxItems || name == "" || !isName(name) || !isName(device) {
		return items
	}
	return append(items, Item{Device: device, Name: name, Value: v})
}

// parseNumber reads a finite number that is not negative: these files have no
// others.
func parseNumber(s string) (float64, bool) {
	if len(s) > maxName {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && v >= 0 && !math.IsInf(v, 0) && !math.IsNaN(v)
}

// isName reports whether s is short and has only letters, digits and the
// separators in names of interfaces and disks.
func isName(s string) bool {
	if len(s) > maxName {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.-:@!", r):
		default:
			return false
		}
	}
	return true
}

// columns appends the numbers of one line under their columns' names.
func columns(items []Item, device string, names, values []string) []Item {
	for i := range min(len(names), len(values)) {
		items = add(items, device, names[i], values[i])
	}
	return items
}

// lines returns the lines of a file; the last may be cut off.
func lines(text []byte) iter.Seq[string] { return strings.Lines(string(text)) }
