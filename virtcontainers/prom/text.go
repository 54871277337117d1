package prom

import (
	"math"
	"strconv"
	"strings"
)

// Kind is a family's type.
type Kind string

// The kinds.
const (
	Counter       Kind = "counter"
	Gauge         Kind = "gauge"
	HistogramKind Kind = "histogram"
)

// ContentType is the format's content type, for an HTTP header.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Text collects families of metrics, in the format of Prometheus's "Exposition
// formats", version 0.0.4. Names of metrics and labels are not checked; labels'
// values may be any text. The zero Text is empty.
type Text struct {
	data []byte
	name string
}

// Bytes is what was written.
func (t *Text) Bytes() []byte { return t.data }

// Family begins a family, to which the samples that follow belong. A family
// must not be begun twice.
func (t *Text) Family(name string, kind Kind, help string) {
	t.name = name
	t.data = append(t.data, "# HELP "+name+" "+helpEscaper.Replace(help)+"\n# TYPE "+name+" "+string(kind)+"\n"...)
}

// Sample adds a sample to the family; labels are pairs of name and value.
func (t *Text) Sample(value float64, labels ...string) { t.sample("", value, labels) }

// Single adds a family of one sample without labels.
func (t *Text) Single(name string, kind Kind, help string, value float64) {
	t.Family(name, kind, help)
	t.Sample(value)
}

// sample adds a sample whose name ends with suffix.
func (t *Text) sample(suffix string, value float64, labels []string) {
	t.data = append(append(t.data, t.name...), suffix...)
	for i := 0; i+1 < len(labels); i += 2 {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		t.data = append(append(t.data, separator), labels[i]...)
		t.data = append(append(append(t.data, `="`...), labelEscaper.Replace(labels[i+1])...), '"')
	}
	if len(labels) > 1 {
		t.data = append(t.data, '}')
	}
	t.data = append(append(append(t.data, ' '), number(value)...), '\n')
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// number returns a value in the text format.
func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	case math.IsNaN(v):
		return "NaN"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
