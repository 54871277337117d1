package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// keysByName has the keys by their full dotted names.
var keysByName = func() map[string]key {
	m := make(map[string]key)
	for _, k := range slices.Concat(keys, withoutEffect) {
		m[k.name] = k
	}
	return m
}()

// tables is every table that holds a known key, and the tables around it.
var tables = func() map[string]bool {
	m := make(map[string]bool)
	for name := range keysByName {
		for strings.Contains(name, ".") {
			name = name[:strings.LastIndexByte(name, '.')]
			m[name] = true
		}
	}
	return m
}()

// builder collects what one build finds.
type builder struct {
	draft   draft
	errs    []error
	unknown []setting
	// idle has the settings of keys without effect that request something.
	idle []setting
}

// build makes a Config for a host with cpus CPUs out of the settings of all
// files, in the order of merging. Its error joins one for each wrong value.
func build(settings []setting, cpus int) (*Config, error) {
	var b builder
	b.draft.cpus, b.draft.Origins = max(cpus, 1), make(map[string]Origin)
	b.setDefaults()
	for _, s := range merge(settings) {
		b.apply(s)
	}
	b.errs = append(b.errs, b.draft.checkTogether())
	if err := errors.Join(b.errs...); err != nil {
		return nil, err
	}
	b.warn()
	b.draft.warnParts()
	b.draft.resolve()
	return &b.draft.Config, nil
}

// merge keeps the last setting of each key, in the order of files and lines.
func merge(settings []setting) []setting {
	last := make(map[string]setting, len(settings))
	for _, s := range settings {
		last[s.name] = s
	}
	merged := make([]setting, 0, len(last))
	for _, s := range last {
		merged = append(merged, s)
	}
	slices.SortFunc(merged, func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.origin.Line, b.origin.Line), cmp.Compare(a.name, b.name))
	})
	return merged
}

// setDefaults gives every key its default. A test of the table checks that each
// is an allowed value.
func (b *builder) setDefaults() {
	for _, k := range keys {
		k.set(&b.draft, k.def)
	}
}

// apply takes one setting, or notes why it cannot be taken.
func (b *builder) apply(s setting) {
	k, known := keysByName[s.name]
	_, isTable := s.value.(map[string]any)
	switch {
	case known && k.state == effective:
		b.set(k, s)
	case known && k.isDefault(s.value):
		// The value is what happens anyway.
	case known && k.unsafe:
		b.errs = append(b.errs, fmt.Errorf("%s: %s = %s is refused: %s", s.origin, s.name, show(s.value), k.doc))
	case known:
		b.idle = append(b.idle, s)
	case tables[s.name] && !isTable:
		b.fail(s, "a table")
	case tables[s.name]:
		// An empty table sets nothing.
	default:
		b.unknown = append(b.unknown, s)
	}
}

// set puts a value into the draft, if it is allowed.
func (b *builder) set(k key, s setting) {
	if k.isUnset(s.value) {
		return
	}
	if !k.set(&b.draft, s.value) {
		b.fail(s, k.want)
		return
	}
	b.draft.Origins[s.name] = s.origin
}

func (b *builder) fail(s setting, want string) {
	b.errs = append(b.errs, fmt.Errorf("%s: %s = %s: want %s", s.origin, s.name, show(s.value), want))
}

// maxShown is the length, in bytes, after which a value in an error text is
// cut.
const maxShown = 80

// show writes a decoded TOML value in a way that fits into an error text.
func show(v any) string {
	var shown string
	switch v := v.(type) {
	case string:
		shown = strconv.Quote(v)
	case map[string]any:
		return "{...}"
	case []any:
		shown = showList(v)
	default:
		shown = fmt.Sprint(v)
	}
	if len(shown) <= maxShown {
		return shown
	}
	end := maxShown
	for !utf8.RuneStart(shown[end]) {
		end--
	}
	return shown[:end] + "..."
}

func showList(list []any) string {
	var items []string
	for length := 0; len(list) > 0 && length <= maxShown; list = list[1:] {
		item := "[...]"
		if _, nested := list[0].([]any); !nested {
			item = show(list[0])
		}
		items = append(items, item)
		length += len(item)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
