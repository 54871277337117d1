package images

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// testStore has every image, made of little.
func testStore(t *testing.T) *Store {
	t.Helper()
	box := busyboxLayer(layer{{Path: "bin/busybox", Mode: 0o755}}, []string{"bin/busybox", "bin/ls", "usr/sbin/brctl"}, []byte("ipcs"), []byte("pgrep"))
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
	if got := digestOf(t, testStore(t).images[pinnedName+":latest"]); got != PinnedDigest {
		t.Errorf("%s has digest %s, the constant says %s", pinnedName, got, PinnedDigest)
	}
}

func digestOf(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestImagesDiffer(t *testing.T) {
	of := map[string][]string{}
	for name, img := range testStore(t).images {
		path, _, _ := strings.Cut(name, ":")
		of[digestOf(t, img)] = append(of[digestOf(t, img)], path)
	}
	for _, names := range of {
		for _, name := range names[1:] {
			if name != names[0] {
				t.Errorf("%s and %s are one image", name, names[0])
			}
		}
	}
}

func TestRegistryServesAnImage(t *testing.T) {
	server, err := Serve(testStore(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var manifest specs.Manifest
	head := get(t, server.URL+"/v2/pause/manifests/3.9?ns=registry.k8s.io", &manifest)
	if got := head.Get("Content-Type"); got != specs.MediaTypeImageManifest {
		t.Errorf("manifest has type %q", got)
	}
	var again specs.Manifest
	get(t, server.URL+"/v2/pause/manifests/"+head.Get("Docker-Content-Digest"), &again)
	if diff := cmp.Diff(manifest, again); diff != "" {
		t.Errorf("by tag and by digest (-tag +digest):\n%s", diff)
	}
	var config specs.Image
	get(t, server.URL+"/v2/pause/blobs/"+manifest.Config.Digest.String(), &config)
	if config.Config.User != "65535:65535" {
		t.Errorf("config has user %q", config.Config.User)
	}
}

func TestPullsAreResumed(t *testing.T) {
	server, err := Serve(testStore(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var manifest specs.Manifest
	get(t, server.URL+"/v2/pause/manifests/3.9", &manifest)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v2/pause/blobs/"+manifest.Layers[0].Digest.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", "bytes=5-")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength != manifest.Layers[0].Size {
		t.Errorf("the rest of a layer: %s, %d bytes, want all %d", resp.Status, resp.ContentLength, manifest.Layers[0].Size)
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
		"/v2/other/manifests/3.9": http.StatusNotFound,
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
}
