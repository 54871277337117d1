package images

import (
	"path"
	"slices"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n" +
		"www-data:x:33:33:www-data:/var/www:/bin/false\n" +
		"nobody:x:65534:65534:nobody:/:/bin/false\n"
	group = "root:x:0:\n" +
		"www-data:x:33:\n" +
		"nogroup:x:65534:\n"
)

// busyboxLayer returns a root with busybox and its libraries, the two programs
// that Debian's lacks, and what the C library needs in /etc.
func busyboxLayer(busybox layer, applets []string, ipcs, pgrep []byte) layer {
	content := slices.Concat(busybox, layer{
		{path: "usr/bin/ipcs", mode: 0o755, data: ipcs},
		{path: "usr/bin/pgrep", mode: 0o755, data: pgrep},
		{path: "etc/passwd", mode: 0o644, data: []byte(passwd)},
		{path: "etc/group", mode: 0o644, data: []byte(group)},
	})
	for _, applet := range applets {
		if applet != "bin/busybox" {
			// Hard links: with symbolic ones, the suite's masked path
			// /bin/ls would mask all of busybox.
			content = append(content, file{path: applet, mode: 0o755, link: "bin/busybox"})
		}
	}
	empty := []string{"dev", "proc", "sys", "run", "root", "home", "mnt", "var/run", "var/tmp"}
	return slices.Concat(parents(content, empty...), layer{{path: "tmp", mode: 0o1777, dir: true}}, content)
}

// page is a web server's only page.
func page(dir string) layer {
	content := layer{{path: dir + "/index.html", mode: 0o644, data: []byte("<html><body>It works</body></html>\n")}}
	return append(parents(content), content...)
}

// predefinedGroup adds a user with a group that is only defined in the image's
// files.
func predefinedGroup() layer {
	return layer{
		{path: "etc/passwd", mode: 0o644, data: []byte(passwd + "default-user:x:1000:1000::/home/default-user:/bin/sh\n")},
		{path: "etc/group", mode: 0o644, data: []byte(group + "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")},
		{path: "home", mode: 0o755, dir: true},
		{path: "home/default-user", mode: 0o755, dir: true},
	}
}

// escalateLayer is a program that gains root's rights by its file's mode.
func escalateLayer(program []byte) layer {
	return layer{{path: "nonewprivs", mode: 0o4755, data: program}}
}

// parents returns the parent directories of content and of more, each after its
// own parent.
func parents(content layer, more ...string) layer {
	seen := map[string]bool{}
	var names []string
	add := func(dir string) {
		for ; dir != "." && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			names = append(names, dir)
		}
	}
	for _, dir := range more {
		add(dir)
	}
	for _, f := range content {
		add(path.Dir(f.path))
	}
	slices.Sort(names) // "a" comes before "a/b"
	dirs := make(layer, len(names))
	for i, name := range names {
		dirs[i] = file{path: name, mode: 0o755, dir: true}
	}
	return dirs
}
