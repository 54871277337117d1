package config

import (
	"slices"
	"strings"
	"testing"
)

func TestKeysAreDeclaredWell(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range slices.Concat(keys, withoutEffect) {
		if seen[k.name] {
			t.Errorf("%s is declared twice", k.name)
		}
		seen[k.name] = true
		if tables[k.name] {
			t.Errorf("%s is both a key and a table", k.name)
		}
		if parts := strings.Count(k.name, ".") + 1; parts > maxParts {
			t.Errorf("%s has %d parts, parsing stops at %d", k.name, parts, maxParts)
		}
		if strings.HasSuffix(k.doc, ".") == (k.state == refused) || strings.ContainsAny(k.doc, "\n\t|") {
			t.Errorf("%s: doc %q is not one line of sentences, or, of a refused key, a phrase", k.name, k.doc)
		}
		if k.want == "" {
			t.Errorf("%s does not say what it wants", k.name)
		}
	}
}

func TestEffectiveKeysTakeTheirDefaults(t *testing.T) {
	for _, k := range keys {
		d := new(draft)
		if k.state != effective || !k.set(d, k.def) {
			t.Errorf("%s refuses its own default %v", k.name, k.def)
		}
		if !k.isDefault(k.get(d)) {
			t.Errorf("%s: %v is set and %v is there", k.name, k.def, k.get(d))
		}
		if k.set(new(draft), map[string]any{}) {
			t.Errorf("%s takes a table", k.name)
		}
	}
	for _, k := range withoutEffect {
		if k.state == effective || k.set != nil || k.unsafe && k.state != refused {
			t.Errorf("%s has state %s and is not among the effective ones", k.name, k.state)
		}
	}
}

func TestAnnotationsAreDeclaredWell(t *testing.T) {
	seen := make(map[string]bool)
	check := func(name string) {
		if seen[name] {
			t.Errorf("annotation %s is declared twice", name)
		}
		seen[name] = true
		if canonical, ours := canonicalName(name); !ours || canonical != name {
			t.Errorf("annotation %s is not found by its name", name)
		}
	}
	for _, k := range slices.Concat(keys, withoutEffect) {
		for _, a := range k.annotations {
			check(a.name)
			if _, list := k.def.([]any); list && a.want == "" && k.state == effective {
				t.Errorf("annotation %s does not say how its list is written", a.name)
			}
			if allowing, ok := keysByName[a.allowedBy]; a.allowed != nil && (!ok || allowing.state != effective) {
				t.Errorf("annotation %s is allowed by %q, which is not a key", a.name, a.allowedBy)
			}
		}
	}
	for _, b := range bareAnnotations {
		check(b.name)
		if b.why == "" || strings.HasSuffix(b.why, ".") || b.refused && b.quiet {
			t.Errorf("annotation %s: %q is no reason", b.name, b.why)
		}
	}
	for old, today := range oldNames {
		if !seen[today] {
			t.Errorf("%s is now %s, which is nothing", old, today)
		}
	}
}
