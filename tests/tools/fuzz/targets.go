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
	"strings"
	"unicode"
	"unicode/utf8"
)

// target is one fuzz function.
type target struct{ pkg, name string }

// listed is what "go list -json" says of a package, as far as it matters here.
type listed struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
}

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

// targets parses the files: a text that only looks like a target is none.
func (p listed) targets() ([]target, error) {
	var found []target
	for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read test file: %w", err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && isTarget(f) {
				found = append(found, target{pkg: p.ImportPath, name: f.Name.Name})
			}
		}
	}
	return found, nil
}

// isTarget tells whether the go command would run f with -fuzz: a function
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
