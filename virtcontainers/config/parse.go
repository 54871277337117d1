package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

// setting is one key with its value, as a file has it.
type setting struct {
	// name is the dotted name; it has at most maxParts parts, and what is
	// deeper is part of the value.
	name   string
	value  any
	origin Origin
	// order is the file's place in the order of merging.
	order int
}

// maxParts is the number of parts of the longest key there is
// (hypervisor.qemu.path). It also bounds the work for a hostile document.
const maxParts = 3

// parse splits a TOML document into its settings. An error names the file,
// the line and the column.
func parse(file string, order int, doc []byte) ([]setting, error) {
	var root map[string]any
	if err := toml.Unmarshal(doc, &root); err != nil {
		if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := decode.Position()
			return nil, fmt.Errorf("%s:%d:%d: %w", file, line, column, err)
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	settings := flatten(nil, nil, root)
	lines := linesOf(doc)
	for i := range settings {
		s := &settings[i]
		s.origin, s.order = Origin{File: file, Line: lines.find(s.name)}, order
	}
	return settings, nil
}

// flatten appends the settings of a table whose name is path. An empty table is
// a setting too, so that none is overlooked.
func flatten(settings []setting, path []string, table map[string]any) []setting {
	for part, value := range table {
		full := slices.Concat(path, []string{part})
		name := dotted(full)
		sub, isTable := value.(map[string]any)
		if isTable && len(sub) > 0 && len(full) < maxParts && !isKey(name) {
			settings = flatten(settings, full, sub)
			continue
		}
		settings = append(settings, setting{name: name, value: value})
	}
	return settings
}

// isKey reports whether name is a key of any table, with or without effect.
func isKey(name string) bool {
	_, known := keysByName[name]
	return known
}
