package image

import (
	"math/rand/v2"
	"path"
	"sort"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// BlobPath is a file of the busybox image with BlobSize bytes without
// repetition, for tests that check that each byte arrives in its place.
const (
	BlobPath = "/data/blob"
	BlobSize = 1 << 20
)

// Blob returns the content of BlobPath.
func Blob() []byte {
	var seed [32]byte
	copy(seed[:], "katabox test image")
	b := make([]byte, BlobSize)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails, by its documentation
	return b
}

// image is one image before it is packed.
type image struct {
	name   string
	files  []file
	config specs.ImageConfig
}

// file is one entry of a layer: a directory when mode says so, a hard link
// when link is set, else a regular file.
type file struct {
	path string // without a leading slash
	mode int64
	dir  bool
	link string
	data []byte
	uid  int
	gid  int
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n" +
		"app:x:1000:1000:app:/home/app:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/:/bin/false\n"
	group = "root:x:0:\n" +
		"operator:x:37:app\n" +
		"app:x:1000:\n" +
		"nogroup:x:65534:\n"
)

func busyboxImage(binary []byte, applets []string) image {
	dirs := map[string]bool{}
	files := []file{
		{path: "tmp", mode: 0o1777, dir: true},
		{path: "root", mode: 0o700, dir: true},
		{path: "home/app", mode: 0o755, dir: true, uid: AppUID, gid: AppGID},
		{path: "bin/busybox", mode: 0o755, data: binary},
		{path: "etc/passwd", mode: 0o644, data: []byte(passwd)},
		{path: "etc/group", mode: 0o644, data: []byte(group)},
		{path: BlobPath[1:], mode: 0o644, data: Blob()},
	}
	for _, d := range []string{"home", "proc", "sys", "dev", "run", "var", "etc", "data", "bin"} {
		dirs[d] = true
	}
	for _, a := range applets {
		if a == "bin/busybox" {
			continue
		}
		for d := path.Dir(a); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
		// Hard links: with symbolic ones, masking one applet's path would
		// mask all of busybox.
		files = append(files, file{path: a, mode: 0o755, link: "bin/busybox"})
	}
	return image{
		name:   Busybox,
		files:  append(dirFiles(dirs), files...),
		config: specs.ImageConfig{Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Cmd: []string{"sh"}},
	}
}

func pauseImage(binary []byte) image {
	dirs := map[string]bool{"proc": true, "sys": true, "dev": true, "etc": true}
	return image{
		name:   Pause,
		files:  append(dirFiles(dirs), file{path: "pause", mode: 0o755, data: binary}),
		config: specs.ImageConfig{User: "65535:65535", Entrypoint: []string{"/pause"}, Env: []string{"PATH=/"}},
	}
}

// dirFiles returns directories, parents first.
func dirFiles(set map[string]bool) []file {
	names := make([]string, 0, len(set))
	for d := range set {
		names = append(names, d)
	}
	sort.Strings(names)
	files := make([]file, 0, len(names))
	for _, d := range names {
		files = append(files, file{path: d, mode: 0o755, dir: true})
	}
	return files
}
