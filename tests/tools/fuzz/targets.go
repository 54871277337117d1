package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// listed is a package: the fields of "go list -json" that are used here, and
// its fuzz functions.
type listed struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	targets                   []string
}

// findPackages returns the packages of the module that have fuzz functions.
func findPackages(ctx context.Context) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read package list: %w", err)
		}
		if err := p.find(); err != nil {
			return nil, err
		}
		if len(p.targets) > 0 {
			packages = append(packages, p)
		}
	}
}

// keepNamed removes the targets that a file does not name, if there is a file. A
// name that several packages use stands for all of them.
func keepNamed(packages []listed, file string) ([]listed, error) {
	if file == "" {
		return packages, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the names of targets: %w", err)
	}
	names := strings.FieldsFunc(string(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	var kept []listed
	for _, p := range packages {
		p.targets = slices.DeleteFunc(p.targets, func(target string) bool { return !slices.Contains(names, target) })
		if len(p.targets) > 0 {
			kept = append(kept, p)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s names no fuzz target", file)
	}
	return kept, nil
}

// oneIn returns every nth package, beginning with number first.
func oneIn(packages []listed, n, first int) []listed {
	var kept []listed
	for i := first; i < len(packages); i += n {
		kept = append(kept, packages[i])
	}
	return kept
}

// find parses the package's files, so that a text that only looks like a target
// is not taken for one.
func (p *listed) find() error {
	for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("read test file: %w", err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && isTarget(f) {
				p.targets = append(p.targets, f.Name.Name)
			}
		}
	}
	return nil
}

// isTarget reports whether the go command would run f with -fuzz: a function
// FuzzX of one *testing.F ("go help testfunc").
func isTarget(f *ast.FuncDecl) bool {
	rest, ok := strings.CutPrefix(f.Name.Name, "Fuzz")
	if first, _ := utf8.DecodeRuneInString(rest); !ok || f.Recv != nil || unicode.IsLower(first) {
		return false
	}
	params := f.Type.Params.List
	if len(params) != 1 {
		return false
	}
	pointer, ok := params[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	kind, ok := pointer.X.(*ast.SelectorExpr)
	return ok && kind.Sel.Name == "F"
}
