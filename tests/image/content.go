package image

import (
	"math/rand/v2"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/katabox/katabox/deploy/image/pack"
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
	files  []pack.File
	config v1.Config
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
	files := append(pack.Dirs("proc", "sys", "dev", "run", "var"), []pack.File{
		{Path: "tmp", Mode: 0o1777, Dir: true},
		{Path: "root", Mode: 0o700, Dir: true},
		{Path: "home/app", Mode: 0o755, Dir: true, UID: AppUID, GID: AppGID},
		{Path: "bin/busybox", Mode: 0o755, Data: binary},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		{Path: "etc/group", Mode: 0o644, Data: []byte(group)},
		{Path: BlobPath[1:], Mode: 0o644, Data: Blob()},
	}...)
	for _, a := range applets {
		if a == "bin/busybox" {
			continue
		}
		// Hard links: with symbolic ones, masking one applet's path would
		// mask all of busybox.
		files = append(files, pack.File{Path: a, Mode: 0o755, Link: "bin/busybox"})
	}
	return image{name: Busybox, files: files, config: v1.Config{Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Cmd: []string{"sh"}}}
}

func pauseImage(binary []byte) image {
	return image{
		name:   Pause,
		files:  append(pack.Dirs("proc", "sys", "dev", "etc"), pack.File{Path: "pause", Mode: 0o755, Data: binary}),
		config: v1.Config{User: "65535:65535", Entrypoint: []string{"/pause"}, Env: []string{"PATH=/"}},
	}
}
