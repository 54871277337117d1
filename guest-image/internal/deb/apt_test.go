package deb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const debContent = "what a package holds"

// digest is the SHA-256 of s.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// records has the answers of `apt-cache show`, by query.
var records = map[string]string{
	"linux-image-cloud-amd64": "Package: linux-image-cloud-amd64\nVersion: 6.1.192-2\nDepends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\nSize: 1504\n",
	"linux-image-6.1.0-56-cloud-amd64=6.1.192-2": "Package: linux-image-6.1.0-56-cloud-amd64\nVersion: 6.1.192-2\n" +
		"Depends: kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool\nSize: 20\nSHA256: " + digest(debContent) + "\n" +
		"Description: Linux\n more\n SHA256: not a field\n\nPackage: another\n",
	"linux-image-amd64":        "Package: linux-image-amd64\nDepends: linux-base, linux-image-6.12.1-amd64\n",
	"linux-image-6.12.1-amd64": "Package: linux-image-6.12.1-amd64\nVersion: 1:2\nSize: 20\nSHA256: " + digest(debContent) + "\n",
	// Debian 14's: the image package has no files.
	"linux-image-cloud-amd64=14": "Package: linux-image-cloud-amd64\nDepends: linux-base-cloud-amd64 (= 7.2.12-1), linux-image-7.2.12+deb14-cloud-amd64 (= 7.2.12-1)\n",
	"linux-image-7.2.12+deb14-cloud-amd64=7.2.12-1": "Package: linux-image-7.2.12+deb14-cloud-amd64\nVersion: 7.2.12-1\n" +
		"Depends: dracut | initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool, linux-base-7.2.12+deb14-cloud-amd64 (= 7.2.12-1), " +
		"linux-binary-7.2.12+deb14-cloud-amd64 (= 7.2.12-1), linux-modules-7.2.12+deb14-cloud-amd64 (= 7.2.12-1)\nSize: 1916\nSHA256: " + digest("") + "\n",
	"linux-base-7.2.12+deb14-cloud-amd64=7.2.12-1":    part("base"),
	"linux-binary-7.2.12+deb14-cloud-amd64=7.2.12-1":  part("binary"),
	"linux-modules-7.2.12+deb14-cloud-amd64=7.2.12-1": part("modules"),
	// Ubuntu's: the image package has the kernel, and another one its modules.
	"linux-image-virtual": "Package: linux-image-virtual\nDepends: linux-image-6.8.0-31-generic\n",
	"linux-image-6.8.0-31-generic": "Package: linux-image-6.8.0-31-generic\nVersion: 6.8.0-31.31\n" +
		"Depends: kmod, linux-base (>= 4.5ubuntu1~16.04.1), linux-modules-6.8.0-31-generic\nSize: 20\nSHA256: " + digest(debContent) + "\n",
	"linux-modules-6.8.0-31-generic": "Package: linux-modules-6.8.0-31-generic\nVersion: 6.8.0-31.31\nSize: 20\nSHA256: " + digest(debContent) + "\n",

	"linux-image-8-part-missing":     "Package: linux-image-8-part-missing\nSize: 20\nSHA256: " + digest("") + "\nDepends: linux-modules-8 (= 8)\n",
	"no-digest":                      "Package: no-digest\nSize: 20\n",
	"no-size":                        "Package: no-size\nSHA256: " + digest("") + "\n",
	"empty":                          "",
	"circle":                         "Package: circle\nDepends: linux-image-1\n",
	"linux-image-1":                  "Package: linux-image-1\nDepends: linux-image-1\n",
	"linux-image-6.1.0-56-cloud-bad": "Package: x\n",
}

// part is the record of a part of Debian 14's image package.
func part(name string) string {
	return "Package: linux-" + name + "-7.2.12+deb14-cloud-amd64\nVersion: 7.2.12-1\nSize: 20\nSHA256: " + digest(debContent) + "\n"
}

// fakeApt answers from records and downloads content.
func fakeApt(content string) Apt {
	return Apt{Run: func(_ context.Context, dir, name string, args ...string) ([]byte, error) {
		query := args[len(args)-1]
		if name == "apt-get" {
			return nil, os.WriteFile(filepath.Join(dir, strings.ReplaceAll(query, "=", "_")+"_amd64.deb"), []byte(content), 0o644)
		}
		record, ok := records[query]
		if !ok {
			return nil, errors.New("exit status 100: E: No packages found")
		}
		return []byte(record), nil
	}}
}

func TestResolve(t *testing.T) {
	for _, tc := range []struct {
		query string
		want  []Package
	}{
		{"linux-image-cloud-amd64", []Package{{"linux-image-6.1.0-56-cloud-amd64", "6.1.192-2", digest(debContent), 20}}},
		{"linux-image-amd64", []Package{{"linux-image-6.12.1-amd64", "1:2", digest(debContent), 20}}},
		{"linux-image-6.12.1-amd64", []Package{{"linux-image-6.12.1-amd64", "1:2", digest(debContent), 20}}},
		{"linux-image-cloud-amd64=14", []Package{
			{"linux-base-7.2.12+deb14-cloud-amd64", "7.2.12-1", digest(debContent), 20},
			{"linux-binary-7.2.12+deb14-cloud-amd64", "7.2.12-1", digest(debContent), 20},
			{"linux-modules-7.2.12+deb14-cloud-amd64", "7.2.12-1", digest(debContent), 20},
		}},
		{"linux-image-virtual", []Package{
			{"linux-image-6.8.0-31-generic", "6.8.0-31.31", digest(debContent), 20},
			{"linux-modules-6.8.0-31-generic", "6.8.0-31.31", digest(debContent), 20},
		}},
	} {
		t.Run(tc.query, func(t *testing.T) {
			got, err := fakeApt("").Resolve(t.Context(), tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResolveErrors(t *testing.T) {
	for query, want := range map[string]string{
		"unknown":   "apt-get update",
		"empty":     "apt-get update",
		"no-digest": "no SHA-256",
		"no-size":   "read size",
		"circle":    "more than",

		"linux-image-8-part-missing": "linux-modules-8=8",
	} {
		if _, err := fakeApt("").Resolve(t.Context(), query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", query, err, want)
		}
	}
}

func TestResolveWithoutApt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Apt{}.Resolve(t.Context(), "linux-image-cloud-amd64")
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "-deb") {
		t.Errorf("error %v, want one that speaks of -deb", err)
	}
}

func TestFetch(t *testing.T) {
	dir := t.TempDir()
	pkg := Package{Name: "linux-image-6.1", Version: "1:6.1-2", SHA256: digest(debContent), Size: int64(len(debContent))}
	want := filepath.Join(dir, "linux-image-6.1_1%3a6.1-2.deb")
	fetch := func(apt Apt, wantCached bool) {
		t.Helper()
		path, cached, err := apt.Fetch(t.Context(), pkg, dir)
		if err != nil || path != want || cached != wantCached {
			t.Errorf("path %s, cached %v, error %v", path, cached, err)
		}
	}
	fetch(fakeApt(debContent), false)
	fetch(Apt{Run: func(context.Context, string, string, ...string) ([]byte, error) {
		return nil, errors.New("must not be called")
	}}, true)
	// A damaged file is replaced.
	if err := os.WriteFile(want, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	fetch(fakeApt(debContent), false)
}

func TestFetchErrors(t *testing.T) {
	pkg := Package{Name: "p", Version: "1", SHA256: digest(debContent)}
	for name, tc := range map[string]struct {
		apt  Apt
		want string
	}{
		"wrong content": {fakeApt("something else"), "SHA-256"},
		"nothing": {Apt{Run: func(context.Context, string, string, ...string) ([]byte, error) {
			return nil, nil
		}}, "0 files"},
		"no network": {Apt{Run: func(context.Context, string, string, ...string) ([]byte, error) {
			return nil, errors.New("could not resolve host")
		}}, "could not resolve"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, _, err := tc.apt.Fetch(t.Context(), pkg, dir)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("%d files are left behind", len(left))
			}
		})
	}
}

func TestDependencies(t *testing.T) {
	for depends, want := range map[string]string{
		"":                               "",
		"kmod, linux-base (>= 4.3~)":     "",
		"linux-image-cloud-amd64":        "",
		"linux-image-6.1.0-1 (= 6.1.9)":  "linux-image-6.1.0-1=6.1.9",
		"a, linux-image-6.1.0-1 (>= 6)":  "linux-image-6.1.0-1",
		"linux-image-6.1.0-1:amd64":      "linux-image-6.1.0-1",
		"linux-image-6.1.0-1:any (= 6)":  "linux-image-6.1.0-1=6",
		"a | b, linux-image-6.1, linux-": "linux-image-6.1",
	} {
		if got := strings.Join(dependencies(depends, imageDependency), " "); got != want {
			t.Errorf("%q: %q, want %q", depends, got, want)
		}
	}
}

func TestRunTellsStandardError(t *testing.T) {
	_, err := Apt{}.run(t.Context(), "", "sh", "-c", "echo why >&2; exit 3")
	if err == nil || fmt.Sprint(err) != "exit status 3: why" {
		t.Errorf("error %v", err)
	}
}
