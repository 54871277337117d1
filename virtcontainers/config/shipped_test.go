package config

import (
	"flag"
	"fmt"
	"os"
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
# Every key that has an effect is here, with its default as the value: this
# file changes nothing, and an absent file or key means the same.
#
# The file read is the one that containerd's ConfigPath option names, else
# $KATA_CONF_FILE, else /etc/kata-containers/configuration.toml, else
# /usr/share/defaults/kata-containers/configuration.toml. The *.toml files of
# the directory config.d beside it are merged over it in the order of their
# names: to change one key, put it into a file there, with its [table] line.
#
# A wrong value is an error. A key of Kata Containers that is not here is known
# but not implemented yet; it and any unknown key are ignored with a warning.
`

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
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("configuration.toml (-defaults +file):\n%s", diff)
	}
	present := make(map[string]bool)
	for _, s := range settings {
		present[s.name] = true
	}
	for _, k := range keys {
		if !present[k.name] {
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
		dot := strings.LastIndexByte(k.name, '.')
		if k.name[:dot] != table {
			table = k.name[:dot]
			fmt.Fprintf(&b, "\n[%s]\n", table)
		}
		fmt.Fprintf(&b, "\n%s%s = %s\n", comment(k.doc), k.name[dot+1:], tomlValue(k.def))
	}
	return b.String()
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

// tomlValue writes a default; the lists among them are empty.
func tomlValue(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
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
