package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// testFunc is a top-level test as its source has it.
type testFunc struct {
	name string
	// calls are the names of the plain functions that it calls.
	calls []string
}

// testsOf reads the tests of the package in dir, in the order of its files.
func testsOf(dir string) ([]testFunc, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var tests []testFunc
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read tests: %w", err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && isTest(f) {
				tests = append(tests, testFunc{name: f.Name.Name, calls: callsOf(f)})
			}
		}
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("read tests: none in %s", dir)
	}
	return tests, nil
}

func isTest(f *ast.FuncDecl) bool {
	return f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain"
}

func callsOf(f *ast.FuncDecl) []string {
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if ident, ok := call.Fun.(*ast.Ident); ok {
				names = append(names, ident.Name)
			}
		}
		return true
	})
	return names
}

// names returns the tests' names; with callees, only of those that call one of
// them.
func names(tests []testFunc, callees ...string) []string {
	var found []string
	for _, t := range tests {
		calls := func(callee string) bool { return slices.Contains(t.calls, callee) }
		if len(callees) == 0 || slices.ContainsFunc(callees, calls) {
			found = append(found, t.name)
		}
	}
	return found
}
