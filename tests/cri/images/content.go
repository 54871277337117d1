package images

import (
	"slices"

	"github.com/katabox/katabox/deploy/image/pack"
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
		{Path: "usr/bin/ipcs", Mode: 0o755, Data: ipcs},
		{Path: "usr/bin/pgrep", Mode: 0o755, Data: pgrep},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		{Path: "etc/group", Mode: 0o644, Data: []byte(group)},
	})
	for _, applet := range applets {
		if applet != "bin/busybox" {
			// Hard links: with symbolic ones, the suite's masked path
			// /bin/ls would mask all of busybox.
			content = append(content, pack.File{Path: applet, Mode: 0o755, Link: "bin/busybox"})
		}
	}
	empty := pack.Dirs("dev", "proc", "sys", "run", "root", "home", "mnt", "var/run", "var/tmp")
	return slices.Concat(empty, layer{{Path: "tmp", Mode: 0o1777, Dir: true}}, content)
}

// page is a web server's only page.
func page(dir string) layer {
	return layer{{Path: dir + "/index.html", Mode: 0o644, Data: []byte("<html><body>It works</body></html>\n")}}
}

// predefinedGroup adds a user with a group that is only defined in the image's
// files.
func predefinedGroup() layer {
	return layer{
		{Path: "etc/passwd", Mode: 0o644, Data: []byte(passwd + "default-user:x:1000:1000::/home/default-user:/bin/sh\n")},
		{Path: "etc/group", Mode: 0o644, Data: []byte(group + "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")},
		{Path: "home/default-user", Mode: 0o755, Dir: true},
	}
}

// escalateLayer is a program that gains root's rights by its file's mode.
func escalateLayer(program []byte) layer {
	return layer{{Path: "nonewprivs", Mode: 0o4755, Data: program}}
}
