package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file, whatever its build constraints.
type source struct {
	// path is relative to the repository's root, folder is its directory.
	path, folder string
	imports      []string
	lines        int
	hasDoc       bool
	isTest       bool
	isGenerated  bool
}

// root is the repository's root, seen from this package.
const root = "../.."

// sources parses every Go file of the module, up to its imports.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(path, entry.Name())
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := read(path)
		all = append(all, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go file found")
	}
	return all
}

// skip skips what is not part of the module: build products, test data, hidden
// directories and nested modules.
func skip(path, name string) error {
	if path == root {
		return nil
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	nested := err == nil
	if nested || name == "testdata" || path == filepath.Join(root, "build") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	return nil
}

func read(path string) (source, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return source{}, err
	}
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return source{}, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return source{}, err
	}
	s := source{
		path:        relative,
		folder:      filepath.ToSlash(filepath.Dir(relative)),
		lines:       bytes.Count(content, []byte{'\n'}),
		hasDoc:      strings.TrimSpace(file.Doc.Text()) != "",
		isTest:      strings.HasSuffix(path, "_test.go"),
		isGenerated: ast.IsGenerated(file),
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return source{}, err
		}
		s.imports = append(s.imports, imported)
	}
	return s, nil
}

func TestImportsPointOneWay(t *testing.T) {
	for _, file := range sources(t) {
		if file.folder == "." {
			continue // deps.go, never built, names what go.mod keeps
		}
		for _, path := range file.imports {
			if why := violation(file.folder, path); why != "" {
				t.Errorf("%s imports %s: %s", file.path, path, why)
			}
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	documented := make(map[string]bool)
	for _, file := range sources(t) {
		if file.isTest || file.folder == "." {
			continue
		}
		documented[file.folder] = documented[file.folder] || file.hasDoc
	}
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", folder)
		}
	}
}

// maxLines is the length at which a file is a collection; the linter warns
// earlier.
const maxLines = 500

func TestFilesAreShort(t *testing.T) {
	files := slices.DeleteFunc(sources(t), func(s source) bool { return s.isTest || s.isGenerated })
	for _, file := range files {
		if file.lines > maxLines {
			t.Errorf("%s has %d lines, more than %d", file.path, file.lines, maxLines)
		}
	}
}
