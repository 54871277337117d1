package images

import (
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/katabox/katabox/deploy/image/pack"
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
const PinnedDigest = "sha256:61f0a8a603201acb8f66d17059bba9761c94c054e18b78237aaa97a9e054baef"

// definition is one image before it is packed.
type definition struct {
	// names are the paths, with tags, under which it is found.
	names  []string
	layers []layer
	config v1.Config
}

// layer is the content of one layer. All files belong to root.
type layer = []pack.File

// parts are what the images that run are made of.
type parts struct {
	busybox, nginx, hostnet, escalate layer
	// idle is a program that does nothing.
	idle []byte
}

// catalog lists the images.
func catalog(p parts) []definition {
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	web := v1.Config{Env: path, Entrypoint: []string{"nginx", "-g", "daemon off;"}}
	// The suite expects the word "httpd" in its output.
	httpd := v1.Config{Env: path, Entrypoint: []string{
		"sh", "-c", "echo 'httpd: serving on port 80'; exec httpd -f -p 80 -h /var/www",
	}}
	all := []definition{
		{[]string{e2eImages + "busybox:1.29-2"}, []layer{p.busybox}, v1.Config{Env: path, Cmd: []string{"sh"}}},
		{[]string{e2eImages + "nginx:1.14-2"}, []layer{p.busybox, p.nginx}, web},
		{[]string{criImages + "hostnet-nginx-" + runtime.GOARCH + ":latest"}, []layer{p.busybox, p.nginx, p.hostnet}, web},
		{[]string{e2eImages + "httpd:2.4.39-4"}, []layer{p.busybox, page("var/www")}, httpd},
		{[]string{e2eImages + "nonewprivs:1.3"}, []layer{p.busybox, p.escalate}, v1.Config{Env: path, Entrypoint: []string{"/nonewprivs"}}},
		{[]string{criImages + "test-image-predefined-group:latest"}, []layer{p.busybox, predefinedGroup()},
			v1.Config{Env: path, User: "1000", Cmd: []string{"sh"}}},
		// Mounted as an image volume, in which a shell is looked for.
		{[]string{criImages + "test-image-tag:test"}, []layer{p.busybox, page("tag")}, v1.Config{Env: path, Cmd: []string{"sh"}}},
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
		content := layer{{Path: "name", Mode: 0o644, Data: []byte(name + "\n")}}
		if name != pinnedName+":latest" {
			content = append(content, pack.File{Path: idle, Mode: 0o755, Data: program})
		}
		return definition{append([]string{name}, more...), []layer{content}, v1.Config{User: user, Cmd: []string{"/" + idle}}}
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
