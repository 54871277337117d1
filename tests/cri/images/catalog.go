package images

import (
	"runtime"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// The registries' paths in the suite's image names, without the hosts.
const (
	e2eImages = "e2e-test-images/"
	criImages = "k8s-staging-cri-tools/"
)

// Busybox is the suite's default image, for the tests of this package's users.
const Busybox = "registry.k8s.io/" + e2eImages + "busybox:1.29-2"

// Web is the suite's web server; it listens on port 80.
const Web = "registry.k8s.io/" + e2eImages + "nginx:1.14-2"

// Pause is a pause container's image, as the suite's.
const Pause = "registry.k8s.io/pause:3.9"

// pinnedName is the only image that the suite pulls by digest.
const pinnedName = criImages + "test-image-digest"

// PinnedDigest is the digest of our stand-in for that image. The suite has the
// digest of the real one as a constant, which cannot be matched:
// tests/tools/critools.sh reads this line and replaces the constant.
// TestPinnedDigest checks it.
const PinnedDigest = "sha256:41b3f25fb10aa683fcb811d87b028c251f5c8b2e53adbb2431a33f0561dd1187"

// definition is one image before it is packed.
type definition struct {
	// names are the paths, with tags, under which it is found.
	names  []string
	layers []layer
	config specs.ImageConfig
}

// layer is the content of one layer, parents before children.
type layer []file

// file is one entry of a layer: a directory if dir is set, a hard link if link
// is set, otherwise a regular file. All belong to root.
type file struct {
	path string // without a leading slash
	mode int64
	dir  bool
	link string
	data []byte
}

// parts are what the images that run are made of.
type parts struct {
	busybox, nginx, hostnet, escalate layer
	// idle is a program that does nothing.
	idle []byte
}

// catalog lists the images.
func catalog(p parts) []definition {
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	web := specs.ImageConfig{Env: path, Entrypoint: []string{"nginx", "-g", "daemon off;"}}
	// The suite expects the word "httpd" in its output.
	httpd := specs.ImageConfig{Env: path, Entrypoint: []string{
		"sh", "-c", "echo 'httpd: serving on port 80'; exec httpd -f -p 80 -h /var/www",
	}}
	all := []definition{
		{[]string{e2eImages + "busybox:1.29-2"}, []layer{p.busybox}, specs.ImageConfig{Env: path, Cmd: []string{"sh"}}},
		{[]string{e2eImages + "nginx:1.14-2"}, []layer{p.busybox, p.nginx}, web},
		{[]string{criImages + "hostnet-nginx-" + runtime.GOARCH + ":latest"}, []layer{p.busybox, p.nginx, p.hostnet}, web},
		{[]string{e2eImages + "httpd:2.4.39-4"}, []layer{p.busybox, page("var/www")}, httpd},
		{[]string{e2eImages + "nonewprivs:1.3"}, []layer{p.busybox, p.escalate}, specs.ImageConfig{Env: path, Entrypoint: []string{"/nonewprivs"}}},
		{[]string{criImages + "test-image-predefined-group:latest"}, []layer{p.busybox, predefinedGroup()},
			specs.ImageConfig{Env: path, User: "1000", Cmd: []string{"sh"}}},
		// Mounted as an image volume, in which a shell is looked for.
		{[]string{criImages + "test-image-tag:test"}, []layer{p.busybox, page("tag")}, specs.ImageConfig{Env: path, Cmd: []string{"sh"}}},
	}
	return append(all, smallOnes(p.idle)...)
}

// idle is the program of images that the suite runs only for their names; it
// needs no library.
const idle = "idle"

// smallOnes lists the images that the suite pulls, inspects and removes, and of
// which it starts two: any content will do as long as each differs.
func smallOnes(program []byte) []definition {
	one := func(name, user string, more ...string) definition {
		content := layer{{path: "name", mode: 0o644, data: []byte(name + "\n")}}
		if name != pinnedName+":latest" {
			content = append(content, file{path: idle, mode: 0o755, data: program})
		}
		return definition{append([]string{name}, more...), []layer{content}, specs.ImageConfig{User: user, Cmd: []string{"/" + idle}}}
	}
	all := []definition{
		one("pause:3.9", "65535:65535"),
		one(pinnedName+":latest", ""),
		one(criImages+"test-image-tags:1", "", criImages+"test-image-tags:2", criImages+"test-image-tags:3"),
		one(criImages+"test-image-user-uid:latest", "1002"),
		one(criImages+"test-image-user-username:latest", "www-data"),
		one(criImages+"test-image-user-uid-group:latest", "1003:33"),
		one(criImages+"test-image-user-username-group:latest", "www-data:33"),
	}
	for _, name := range []string{"latest:latest", "tag:all", "1:latest", "2:latest", "3:latest"} {
		all = append(all, one(criImages+"test-image-"+name, ""))
	}
	return all
}
