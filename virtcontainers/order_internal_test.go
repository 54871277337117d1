package virtcontainers

import (
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/virtcontainers/config"
)

// A template belongs to a configuration file: to the same one if an operator names it
// by a relative path (kata-runtime factory init --config c.toml).
func TestSourceFileIsAbsolute(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for given, want := range map[string]string{"c.toml": filepath.Join(dir, "c.toml"), "/etc/c.toml": "/etc/c.toml"} {
		if got := sourceFile(&config.Config{Source: []string{given, "d.toml"}}); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
	if got := sourceFile(&config.Config{}); got != "" {
		t.Errorf("without a file: %s", got)
	}
}
