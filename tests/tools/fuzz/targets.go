package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// target is one fuzz function.
type target struct{ pkg, name string }

// listed is what "go list -json" says of a package, as far as it matters here.
type listed struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz[A-Z]\w*)\(\w+ \*testing\.F\)`)

// findTargets reads the test files of every package of the module.
func findTargets(ctx context.Context) ([]target, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var targets []target
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return targets, nil
		} else if err != nil {
			return nil, fmt.Errorf("read package list: %w", err)
		}
		found, err := p.targets()
		if err != nil {
			return nil, err
		}
		targets = append(targets, found...)
	}
}

func (p listed) targets() ([]target, error) {
	var found []target
	for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, fmt.Errorf("read test file: %w", err)
		}
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			found = append(found, target{pkg: p.ImportPath, name: string(m[1])})
		}
	}
	return found, nil
}
