package images

import (
	"encoding/json"
	"net/http"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// testStore has every image, made of little.
func testStore(t *testing.T) *Store {
	t.Helper()
	box := busyboxLayer(layer{{path: "bin/busybox", mode: 0o755}}, []string{"bin/busybox", "bin/ls", "usr/sbin/brctl"}, []byte("ipcs"), []byte("pgrep"))
	s := newStore()
	for _, def := range catalog(parts{box, nginxLayer(nil), layer{nginxConfig(hostnetPort)}, escalateLayer(nil), nil}) {
		if err := s.add(def); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// The tools' script takes the digest from the source.
func TestPinnedDigest(t *testing.T) {
	if got := testStore(t).manifests[pinnedName+":latest"].String(); got != PinnedDigest {
		t.Errorf("%s has digest %s, the constant says %s", pinnedName, got, PinnedDigest)
	}
}

func TestImagesDiffer(t *testing.T) {
	of := map[digest.Digest][]string{}
	for name, d := range testStore(t).manifests {
		of[d] = append(of[d], repository(name))
	}
	for _, names := range of {
		for _, name := range names[1:] {
			if name != names[0] {
				t.Errorf("%s and %s are one image", name, names[0])
			}
		}
	}
}

func TestDirectoriesComeFirst(t *testing.T) {
	for _, l := range []layer{busyboxLayer(nil, []string{"bin/ls", "usr/sbin/brctl"}, nil, nil), nginxLayer(nil), page("var/www")} {
		seen := map[string]bool{".": true}
		for _, f := range l {
			if !seen[path.Dir(f.path)] {
				t.Errorf("%s comes before its directory", f.path)
			}
			seen[f.path] = seen[f.path] || f.dir
		}
	}
}

func TestRegistryServesAnImage(t *testing.T) {
	server, err := Serve(testStore(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var manifest v1.Manifest
	head := get(t, server.URL+"/v2/pause/manifests/3.9?ns=registry.k8s.io", &manifest)
	if got := head.Get("Content-Type"); got != v1.MediaTypeImageManifest {
		t.Errorf("manifest has type %q", got)
	}
	var again v1.Manifest
	get(t, server.URL+"/v2/pause/manifests/"+head.Get("Docker-Content-Digest"), &again)
	if diff := cmp.Diff(manifest, again); diff != "" {
		t.Errorf("by tag and by digest (-tag +digest):\n%s", diff)
	}
	var config v1.Image
	get(t, server.URL+"/v2/pause/blobs/"+manifest.Config.Digest.String(), &config)
	if config.Config.User != "65535:65535" {
		t.Errorf("config has user %q", config.Config.User)
	}
}

func get(t *testing.T, url string, into any) http.Header {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return resp.Header
}

func TestRegistryRefuses(t *testing.T) {
	server, err := Serve(testStore(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for path, want := range map[string]int{
		"/v2/": http.StatusOK, "/": http.StatusNotFound, "/v2/pause/manifests/4": http.StatusNotFound,
		"/v2/other/manifests/3.9": http.StatusNotFound, "/v2/pause/tags/list": http.StatusNotFound,
		"/v2/pause/blobs/3.9": http.StatusNotFound,
	} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, resp.StatusCode, want)
		}
	}
	resp, err := http.Post(server.URL+"/v2/pause/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("upload: got %d", resp.StatusCode)
	}
}

func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{"/v2/", "/v2/a/manifests/1", "/v2/a/b/blobs/sha256:00", "/v2//manifests/", "/v2/a/tags/list"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, ok := parsePath(path)
		if ok && "/v2/"+r.name+"/"+r.kind+"/"+r.ref != path {
			t.Errorf("%q became %+v", path, r)
		}
	})
}
