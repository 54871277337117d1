package main

import (
	"io"
	"testing"

	docs "github.com/urfave/cli-docs/v3"
)

// The manual page in docs/man is generated from the commands.
func TestManual(t *testing.T) {
	app := newApp(io.Discard, io.Discard, host{})
	page, err := docs.ToManWithSection(app, 8)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../../../docs/man/kata-runtime.8", page)
}
