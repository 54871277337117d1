package images

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// AddKubernetes adds the images of Kubernetes' own suite of release 1.36
// (k8s.io/kubernetes, test/utils/image/manifest.go): those that its cases for
// nodes run. tools is a directory with the suite's program agnhost, which is
// statically linked, and what its image has beside it; cache is as for Build.
func (s *Store) AddKubernetes(ctx context.Context, cache, tools string) error {
	p, err := gather(ctx, cache)
	if err != nil {
		return err
	}
	agnhost, err := agnhostLayer(ctx, cache, tools)
	if err != nil {
		return err
	}
	sh, err := compile(ctx, cache, "sh")
	if err != nil {
		return err
	}
	box := []layer{slices.Concat(p.busybox, allInBin(p.busybox)), {{path: "bin", mode: 0o755, dir: true}, {path: "bin/sh", mode: 0o755, data: sh}}}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	shell := specs.ImageConfig{Env: env, Cmd: []string{"sh"}}
	unprivileged := shell
	unprivileged.User = "1234"
	for _, def := range []definition{
		{[]string{e2eImages + "agnhost:2.63.0", e2eImages + "agnhost:2.55"}, []layer{p.busybox, agnhost},
			specs.ImageConfig{Env: env, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}},
		{[]string{e2eImages + "busybox:1.37.0-1"}, box, shell},
		{[]string{e2eImages + "nonroot:1.5"}, box, unprivileged},
		{[]string{e2eImages + "glibc-dns-testing:2.0.0"}, []layer{p.busybox}, shell}, // Debian's busybox resolves names with glibc
		{[]string{e2eImages + "nonewprivs:1.4"}, []layer{p.busybox, p.escalate}, specs.ImageConfig{Env: env, Entrypoint: []string{"/nonewprivs"}}},
		{[]string{e2eImages + "nginx:1.15-4", e2eImages + "nginx:1.27-0"}, []layer{p.busybox, p.nginx},
			specs.ImageConfig{Env: env, Entrypoint: []string{"nginx", "-g", "daemon off;"}}},
		{[]string{"pause:3.10.2"}, []layer{{{path: idle, mode: 0o755, data: p.idle}}}, specs.ImageConfig{User: "65535:65535", Entrypoint: []string{"/" + idle}}},
	} {
		if err := s.add(def); err != nil {
			return err
		}
	}
	return nil
}

// allInBin adds the links with which all applets are in /bin, as in busybox's own
// image: the suite calls /bin/sysctl.
func allInBin(root layer) layer {
	have := map[string]bool{}
	for _, f := range root {
		have[f.path] = true
	}
	var added layer
	for _, f := range root {
		if link := "bin/" + path.Base(f.path); f.link != "" && !have[link] {
			have[link] = true
			added = append(added, file{path: link, mode: 0o755, link: f.link})
		}
	}
	return added
}

// agnhostLayer adds to busybox's root what the suite's main image has: its program
// and the certificate that it serves HTTPS with, bash and curl, and a user with a
// group of the image's own.
func agnhostLayer(ctx context.Context, cache, tools string) (layer, error) {
	content := layer{
		{path: "agnhost-2", mode: 0o755, link: "agnhost"},
		{path: "etc/passwd", mode: 0o644, data: []byte(passwd + "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n")},
		{path: "etc/group", mode: 0o644, data: []byte(group + "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")},
	}
	for name, mode := range map[string]int64{"agnhost": 0o755, "localhost.crt": 0o644, "localhost.key": 0o644} {
		data, err := os.ReadFile(filepath.Join(tools, name))
		if err != nil {
			return nil, fmt.Errorf("read what agnhost's image has: %w", err)
		}
		content = append(content, file{path: name, mode: mode, data: data})
	}
	for name, path := range map[string]string{"bash": "bin/bash", "curl": "usr/bin/curl"} {
		files, err := debianProgram(ctx, cache, name, path)
		if err != nil {
			return nil, err
		}
		content = slices.Concat(content, files)
	}
	// Both programs bring the C library. In the order of paths a link comes after
	// what it names.
	slices.SortStableFunc(content, func(a, b file) int { return strings.Compare(a.path, b.path) })
	content = slices.CompactFunc(content, func(a, b file) bool { return a.path == b.path })
	return slices.Concat(parents(content, "uploads", "home/user-defined-in-image"), content), nil
}
