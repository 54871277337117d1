package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The packages of a host that conflict with those of deps.sh, as their publishers
// declare them.
var conflicting = map[string]string{
	"docker-ce":     "Depends: containerd.io\n",
	"containerd.io": "Provides: containerd, runc\nConflicts: containerd, runc\nReplaces: containerd, runc\n",
	"busybox":       "Conflicts: busybox-static\nReplaces: busybox-static\n",
	"make-guile":    "Conflicts: make\n",
}

// archived has the relations of packages in the archive. The others have none.
var archived = map[string]string{
	"containerd":     "Depends: runc\n",
	"podman":         "Depends: runc | crun\n",
	"busybox-static": "Provides: busybox\nConflicts: busybox\nReplaces: busybox\n",
}

// deps.sh removes nothing of the host, such as Docker and its containers.
func TestDepsRemoveNothing(t *testing.T) {
	tests := map[string]struct {
		has, lacks []string
		want       []string
		fails      bool
	}{
		"all there": {nil, nil, []string{"packages are there"}, false},
		"bare":      {nil, []string{"containerd", "runc", "podman", "make"}, []string{"Inst containerd ", "Inst runc ", "Inst podman ", "Inst make "}, false},
		"Docker CE": {
			[]string{"docker-ce", "containerd.io"},
			[]string{"containerd", "runc", "podman", "curl"},
			[]string{"would unpack containerd\n", "Inst podman ", "Inst curl "}, false,
		},
		"busybox": {
			[]string{"busybox"}, []string{"busybox-static", "curl"},
			[]string{"would unpack busybox-static\n", "Inst curl "}, false,
		},
		"another conflict": {[]string{"make-guile"}, []string{"make", "curl"}, []string{"would remove make-guile: nothing was installed"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := runDeps(t, test.has, test.lacks)
			if (err != nil) != test.fails {
				t.Errorf("deps.sh: %v", err)
			}
			if strings.Contains(out, "Remv ") {
				t.Error("it removes packages")
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("it does not print %q", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// runDeps runs "deps.sh -n" on a host that has all packages of the script except
// those in lacks, and those in has; it returns the script's output.
func runDeps(t *testing.T, has, lacks []string) (string, error) {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-query", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	script, err := os.ReadFile("deps.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var status, archive strings.Builder
	for _, name := range listed(t, string(script)) {
		fmt.Fprintf(&archive, "%sFilename: %[2]s.deb\nSize: 1\nSHA256: %064d\n\n", stanza(name, archived[name]), name, 0)
		if !slices.Contains(lacks, name) {
			status.WriteString(stanza(name, archived[name]) + "Status: install ok installed\n\n")
		}
	}
	for _, name := range has {
		status.WriteString(stanza(name, conflicting[name]) + "Status: install ok installed\n\n")
	}
	files := map[string]string{
		"tests/tools/deps.sh":       string(script),
		"admin/status":              status.String(),
		"admin/info/format":         "1\n",
		"archive/Packages":          archive.String(),
		"sources.list":              "deb [trusted=yes] file:" + dir + "/archive ./\n",
		"lists/partial/x":           "",
		"cache/archives/partial/x":  "",
		"empty/x":                   "",
		"apt.conf":                  aptConfig(dir),
		"admin/updates/placeholder": "",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("APT_CONFIG", filepath.Join(dir, "apt.conf"))
	t.Setenv("DPKG_ADMINDIR", filepath.Join(dir, "admin"))
	if out, err := exec.Command("apt-get", "update").CombinedOutput(); err != nil {
		t.Fatalf("apt-get update: %v\n%s", err, out)
	}
	out, err := exec.Command("bash", filepath.Join(dir, "tests/tools/deps.sh"), "-n").CombinedOutput()
	return string(out), err
}

// aptConfig keeps apt to the files below dir.
func aptConfig(dir string) string {
	return fmt.Sprintf(`Dir::State "%[1]s"; Dir::State::lists "%[1]s/lists"; Dir::State::status "%[1]s/admin/status";
Dir::State::extended_states "%[1]s/extended"; Dir::Cache "%[1]s/cache"; Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "%[1]s/empty"; Dir::Etc::parts "%[1]s/empty"; Dir::Etc::preferencesparts "%[1]s/empty";
APT::Sandbox::User "root"; APT::Get::List-Cleanup "false";
`, dir)
}

// stanza returns a package's paragraph in a control file.
func stanza(name, relations string) string {
	return fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n%s", name, relations)
}

// listed returns the packages that the script installs.
func listed(t *testing.T, script string) []string {
	t.Helper()
	_, rest, _ := strings.Cut(script, "packages=(\n")
	block, _, found := strings.Cut(rest, "\n)\n")
	if !found {
		t.Fatal("deps.sh has no list of packages")
	}
	names := strings.Fields(regexp.MustCompile(`(?m)#.*$`).ReplaceAllString(block, ""))
	if !slices.Contains(names, "containerd") {
		t.Fatalf("its packages are %q", names)
	}
	return names
}
