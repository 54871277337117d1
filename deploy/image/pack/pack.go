package pack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path"
	"runtime"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// NameAnnotation gives a manifest its full reference when containerd imports it
// (containerd, core/images/annotations.go); the specification's own annotation is
// only the tag.
const NameAnnotation = "io.containerd.image.name"

// epoch is the time of all that is packed.
var epoch = time.Unix(0, 0).UTC()

// File is one entry of a layer: a directory if Dir is set, a hard link if Link is
// set, otherwise a regular file.
type File struct {
	Path     string // without a leading slash
	Mode     int64  // as of chmod(2)
	Dir      bool
	Link     string // the path of an entry before this one
	Data     []byte
	UID, GID int
}

// Dirs returns directories that belong to root and that all users may read.
func Dirs(paths ...string) []File {
	files := make([]File, len(paths))
	for i, p := range paths {
		files[i] = File{Path: p, Mode: 0o755, Dir: true}
	}
	return files
}

// Layer packs files in their order, uncompressed. Before each come those of the
// directories above it that have not come yet, as of Dirs.
func Layer(files []File) (v1.Layer, error) {
	archive, err := tarOf(files)
	if err != nil {
		return nil, err
	}
	return static.NewLayer(archive, types.OCIUncompressedLayer), nil
}

// Image returns an image of this platform with layers, the lowest first. Of config
// only Author and Config are used.
func Image(config v1.ConfigFile, layers ...v1.Layer) (v1.Image, error) {
	config.OS, config.Architecture, config.Created = "linux", runtime.GOARCH, v1.Time{Time: epoch}
	config.RootFS = v1.RootFS{Type: "layers"}
	for _, l := range layers {
		id, err := l.DiffID()
		if err != nil {
			return nil, fmt.Errorf("read layer's digest: %w", err)
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, id)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, fmt.Errorf("add layers: %w", err)
	}
	return mutate.ConfigFile(img, &config)
}

func tarOf(files []File) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range withParents(files) {
		h := tar.Header{Name: f.Path, Mode: f.Mode, Uid: f.UID, Gid: f.GID, ModTime: epoch, Format: tar.FormatPAX}
		switch {
		case f.Dir:
			h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.Link
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Data))
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Path, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return archive.Bytes(), nil
}

// withParents adds the directories that are missing before the first file below
// them.
func withParents(files []File) []File {
	var all []File
	seen := map[string]bool{".": true}
	for _, f := range files {
		var missing []string
		for dir := path.Dir(f.Path); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			missing = append(missing, dir)
		}
		slices.Reverse(missing)
		all = append(append(all, Dirs(missing...)...), f)
		seen[f.Path] = seen[f.Path] || f.Dir
	}
	return all
}
