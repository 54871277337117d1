package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"
)

// writeTOML writes everything as one document. The configuration's part is a
// valid configuration file; each value is followed by its origin.
func (e *env) writeTOML(w io.Writer) error {
	head, err := toml.Marshal(map[string]any{"warnings": e.Warnings})
	if err != nil {
		return fmt.Errorf("write TOML: %w", err)
	}
	rest, err := toml.Marshal(struct {
		Versions versions `toml:"versions"`
		Host     machine  `toml:"host"`
		Paths    paths    `toml:"paths"`
	}{e.Versions, e.Host, e.Paths})
	if err != nil {
		return fmt.Errorf("write TOML: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%s\n%s", head, rest); err != nil {
		return fmt.Errorf("write TOML: %w", err)
	}
	return e.writeConfig(w)
}

// writeConfig writes the values by table.
func (e *env) writeConfig(w io.Writer) error {
	var table string
	for _, v := range e.Config {
		dot := strings.LastIndexByte(v.Key, '.')
		if v.Key[:dot] != table {
			table = v.Key[:dot]
			fmt.Fprintf(w, "\n[config.%s]\n", table)
		}
		line, err := toml.Marshal(map[string]any{v.Key[dot+1:]: v.Value})
		if err != nil {
			return fmt.Errorf("write TOML: %s: %w", v.Key, err)
		}
		if _, err := fmt.Fprintf(w, "%s # %s\n", strings.TrimSuffix(string(line), "\n"), comment(v.From)); err != nil {
			return fmt.Errorf("write TOML: %w", err)
		}
	}
	return nil
}

// comment escapes control characters, which TOML does not allow in a comment, so
// that a text stays on its line.
func comment(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}
