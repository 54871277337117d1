package config

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite configuration.toml and the golden files")

// shippedFile is the configuration.toml of the repository's root. It is
// written from the table of keys: go test ./virtcontainers/config -update
const shippedFile = "../../configuration.toml"

const shippedHead = `# Configuration of Katabox, the runtime io.containerd.kata.v2.
#
# Every key that has an effect is here with its default, unless its comment says
# otherwise: a key that is absent has the same value.
#
# The first of these files that exists is read:
#   1. the one that containerd's ConfigPath option names
#   2. $KATA_CONF_FILE
#   3. /etc/kata-containers/configuration.toml
#   4. ../share/defaults/kata-containers/configuration.toml from the shim's directory
#   5. /usr/share/defaults/kata-containers/configuration.toml
#
# The files config.d/*.toml beside it are merged over it in the order of their
# names. To change one key, put it into a file there, with its [table] line.
#
# A wrong value is an error. Unknown keys, and keys of Kata Containers that have
# no effect here, are ignored with a warning. docs/configuration.md has all keys,
# and the annotations by which pods can set some of them.
`

// shippedOtherwise has the keys whose value in the file is not the default, and
// why.
var shippedOtherwise = map[string]struct {
	value any
	why   string
}{
	"runtime.disable_guest_seccomp": {false, "The default, Kata Containers', is true; this file says false because it is " +
		"safer, and engines send a profile only where they want it applied."},
}

// shippedUnset has the keys that the file has only as a comment, because what is in
// use without them is better than their default.
var shippedUnset = []string{KernelKey, InitrdKey}

func TestShippedFileIsWrittenFromTheTable(t *testing.T) {
	golden(t, shippedFile, renderShipped())
}

func TestShippedFileIsTheDefaults(t *testing.T) {
	doc, err := os.ReadFile(shippedFile)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := parse("configuration.toml", 0, doc)
	if err != nil {
		t.Fatal(err)
	}
	got, err := build(settings, 4)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	for name, other := range shippedOtherwise {
		if d := (draft{Config: want}); !keysByName[name].set(&d, other.value) {
			t.Errorf("%s refuses %v", name, other.value)
		} else {
			want = d.Config
		}
	}
	if diff := diffConfig(&want, got); diff != "" {
		t.Errorf("configuration.toml (-defaults +file):\n%s", diff)
	}
	present := make(map[string]bool)
	for _, s := range settings {
		present[s.name] = true
	}
	for _, k := range keys {
		if unset := slices.Contains(shippedUnset, k.name); present[k.name] == unset {
			t.Errorf("configuration.toml sets %s: %t", k.name, unset)
		} else if _, name := split(k); unset && !strings.Contains(string(doc), "\n# "+name+" = ") {
			t.Errorf("configuration.toml lacks %s", k.name)
		}
	}
}

// renderShipped writes configuration.toml.
func renderShipped() string {
	var b strings.Builder
	b.WriteString(shippedHead)
	var table string
	for _, k := range keys {
		in, name := split(k)
		if in != table {
			table = in
			fmt.Fprintf(&b, "\n[%s]\n", table)
		}
		value, doc := k.def, k.doc
		if other, ok := shippedOtherwise[k.name]; ok {
			value, doc = other.value, doc+" "+other.why
		}
		if slices.Contains(shippedUnset, k.name) {
			name = "# " + name
		}
		fmt.Fprintf(&b, "\n%s%s = %s\n", comment(doc), name, tomlValue(value))
	}
	return b.String()
}

// split returns a key's table and its name there.
func split(k key) (table, name string) {
	dot := strings.LastIndexByte(k.name, '.')
	return k.name[:dot], k.name[dot+1:]
}

// comment breaks sentences into comment lines of at most 79 characters.
func comment(doc string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(doc) {
		if len(line)+1+len(word) > 79 {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// tomlValue writes a default.
func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = tomlValue(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// golden compares got with a file, or rewrites the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test -update writes it anew:\n%s", file, diff)
	}
}
