package config

import (
	"strings"
	"testing"
)

func TestKeysAreDeclaredWell(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range keys {
		if seen[k.name] {
			t.Errorf("%s is declared twice", k.name)
		}
		seen[k.name] = true
		if plannedKeys[k.name] {
			t.Errorf("%s is both used and planned", k.name)
		}
		if parts := strings.Count(k.name, ".") + 1; parts > maxParts {
			t.Errorf("%s has %d parts, parsing stops at %d", k.name, parts, maxParts)
		}
		if !strings.HasSuffix(k.doc, ".") || strings.ContainsAny(k.doc, "\n\t") {
			t.Errorf("%s: doc %q is not one line of sentences", k.name, k.doc)
		}
		if k.want == "" {
			t.Errorf("%s does not say what it wants", k.name)
		}
		if !k.set(new(draft), k.def) {
			t.Errorf("%s refuses its own default %v", k.name, k.def)
		}
		if k.set(new(draft), map[string]any{}) {
			t.Errorf("%s takes a table", k.name)
		}
	}
}

func TestPlannedKeysAreNotTables(t *testing.T) {
	for name := range plannedKeys {
		if tables[name] {
			t.Errorf("%s is both a key and a table", name)
		}
	}
}
