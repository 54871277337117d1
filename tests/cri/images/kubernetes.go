package images

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/katabox/katabox/deploy/image/pack"
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
	box := []layer{slices.Concat(p.busybox, allInBin(p.busybox)), {{Path: "bin/sh", Mode: 0o755, Data: sh}}}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	shell := v1.Config{Env: env, Cmd: []string{"sh"}}
	unprivileged := shell
	unprivileged.User = "1234"
	for _, def := range []definition{
		{[]string{e2eImages + "agnhost:2.63.0", e2eImages + "agnhost:2.55"}, []layer{p.busybox, agnhost},
			v1.Config{Env: env, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}},
		{[]string{e2eImages + "busybox:1.37.0-1"}, box, shell},
		{[]string{e2eImages + "nonroot:1.5"}, box, unprivileged},
		{[]string{e2eImages + "glibc-dns-testing:2.0.0"}, []layer{p.busybox}, shell}, // Debian's busybox resolves names with glibc
		{[]string{e2eImages + "nonewprivs:1.4"}, []layer{p.busybox, p.escalate}, v1.Config{Env: env, Entrypoint: []string{"/nonewprivs"}}},
		{[]string{e2eImages + "nginx:1.15-4", e2eImages + "nginx:1.27-0"}, []layer{p.busybox, p.nginx},
			v1.Config{Env: env, Entrypoint: []string{"nginx", "-g", "daemon off;"}}},
		{[]string{"pause:3.10.2"}, []layer{{{Path: idle, Mode: 0o755, Data: p.idle}}}, v1.Config{User: "65535:65535", Entrypoint: []string{"/" + idle}}},
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
		have[f.Path] = true
	}
	var added layer
	for _, f := range root {
		if link := "bin/" + path.Base(f.Path); f.Link != "" && !have[link] {
			have[link] = true
			added = append(added, pack.File{Path: link, Mode: 0o755, Link: f.Link})
		}
	}
	return added
}

// agnhostLayer adds to busybox's root what the suite's main image has: its program
// and the certificate that it serves HTTPS with, bash and curl, and a user with a
// group of the image's own.
func agnhostLayer(ctx context.Context, cache, tools string) (layer, error) {
	content := layer{
		{Path: "agnhost-2", Mode: 0o755, Link: "agnhost"},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte(passwd + "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n")},
		{Path: "etc/group", Mode: 0o644, Data: []byte(group + "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")},
	}
	for name, mode := range map[string]int64{"agnhost": 0o755, "localhost.crt": 0o644, "localhost.key": 0o644} {
		data, err := os.ReadFile(filepath.Join(tools, name))
		if err != nil {
			return nil, fmt.Errorf("read what agnhost's image has: %w", err)
		}
		content = append(content, pack.File{Path: name, Mode: mode, Data: data})
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
	slices.SortStableFunc(content, func(a, b pack.File) int { return strings.Compare(a.Path, b.Path) })
	content = slices.CompactFunc(content, func(a, b pack.File) bool { return a.Path == b.Path })
	return append(pack.Dirs("uploads", "home/user-defined-in-image"), content...), nil
}
