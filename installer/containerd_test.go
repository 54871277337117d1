package installer

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// migrated is what "containerd config migrate" of 2.4.2 makes of a file with the
// installer's lines: it has their content and that of imported files, without
// comments.
const migrated = "version = 4\nimports = ['/etc/containerd/conf.d/*.toml', '" + containerdDropIn + "']\n\n[plugins]\n" +
	"  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\n    runtime_path = '" + ShimPath + "'\n"

// A migrated configuration has the handler outside the installer's lines.
func TestInstallAfterMigration(t *testing.T) {
	_, plugins, _ := strings.Cut(migrated, "\n[plugins]")
	files := map[string]string{
		"with imports":    migrated,
		"with others":     strings.Replace(migrated, "/etc/containerd/conf.d/*.toml', '"+containerdDropIn, "/etc/more.toml", 1),
		"without imports": "version = 4\n\n[plugins]" + plugins,
		"version 2":       "version = 2\n" + (containerd{handler: "kata"}).table(2),
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, map[string]string{containerdConfig: text})
			h.install(newBuild(t, "shim"))
			if got := h.read(containerdConfig); !strings.HasSuffix(got, text) || !strings.Contains(got, ShimPath) {
				t.Errorf("the file became\n%s", got)
			}
		})
	}
}

// containerd does not start if it imports a missing file: what remains of a migrated
// configuration is refused before anything is removed.
func TestUninstallAfterMigration(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	h.install(newBuild(t, "shim"))
	h.file(containerdConfig, blockBegin+"\nimports = []\n"+blockEnd+"\n"+migrated, 0o600)
	before := h.tree()
	_, err := Uninstall(t.Context(), h.options(""))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{containerdConfig, "line 5: imports = [", "line 9: runtime_path = ", "uninstall again"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "line 2") {
		t.Errorf("the installer's own line is named: %v", err)
	}
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("it changed (-want +got):\n%s", diff)
	}
	h.file(containerdConfig, "version = 4\n# "+ShimPath+"\n", 0o600)
	h.uninstall()
}

// imported returns the line with the imports of containerd's configuration.
func (h *host) imported() string {
	for line := range strings.Lines(h.read(containerdConfig)) {
		if strings.HasPrefix(line, "imports = ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestImportsOfTheBlock(t *testing.T) {
	const other = "/etc/containerd/conf.d/60-kata-disk.toml"
	tests := map[string]struct {
		block, want string
		foreign     bool
	}{
		"new":                           {"", `imports = ["/etc/containerd/conf.d/*.toml"]`, false},
		"new, unread files":             {"", `imports = ["` + containerdDropIn + `"]`, true},
		"only the drop-in":              {`["` + containerdDropIn + `"]`, `imports = ["/etc/containerd/conf.d/*.toml"]`, false},
		"only the drop-in, unread file": {`["` + containerdDropIn + `"]`, `imports = ["` + containerdDropIn + `"]`, true},
		"the directory":                 {`["/etc/containerd/conf.d/*.toml"]`, `imports = ["/etc/containerd/conf.d/*.toml"]`, true},
		"more":                          {`["` + containerdDropIn + `", "` + other + `"]`, `imports = ["` + other + `", "` + containerdDropIn + `"]`, true},
		"elsewhere":                     {`["/etc/more/*.toml"]`, `imports = ["/etc/more/*.toml", "/etc/containerd/conf.d/*.toml"]`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(nodes["containerd 2.x"])
			text := files["etc/containerd/config.toml"]
			if test.block != "" {
				files["etc/containerd/config.toml"] = string(withBlock([]byte(text), atStart, "imports = "+test.block+"\n"))
			}
			if test.foreign {
				files[other] = "version = 3\n"
			}
			h := newHost(t, files)
			build := newBuild(t, "shim")
			for range 2 {
				h.install(build)
				if got := h.imported(); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
			}
			h.uninstall()
			if got := h.read(containerdConfig); got != text {
				t.Errorf("after uninstall: %q", got)
			}
		})
	}
}

// A file that the installer makes also reads drop-ins that are added later.
func TestNewFileImportsDropIns(t *testing.T) {
	for _, name := range []string{"no file", "only comments"} {
		h := newHost(t, nodes[name])
		h.file("usr/bin/containerd", "", 0o755)
		h.install(newBuild(t, "shim"))
		if got := h.imported(); got != `imports = ["/etc/containerd/conf.d/*.toml"]` {
			t.Errorf("%s: %q", name, got)
		}
		h.version = "containerd containerd.io 1.7.24 abc"
		h.install(newBuild(t, "shim"))
		if got := h.imported(); got != "" {
			t.Errorf("%s, containerd 1.7: %q", name, got)
		}
	}
}
