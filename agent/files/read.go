package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// ReadEnd returns the last bytes of a regular file, at most most of them
// (api.MaxReadFile). It blocks as long as the file system does.
func (t *Tree) ReadEnd(full string, most uint32) ([]byte, error) {
	content, err := t.readEnd(full, most)
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", full, withKind(err))
	}
	return content, nil
}

func (t *Tree) readEnd(full string, most uint32) ([]byte, error) {
	if most > api.MaxReadFile {
		return nil, fmt.Errorf("%d bytes are wanted, want at most %d: %w", most, api.MaxReadFile, errdefs.ErrInvalidArgument)
	}
	rel, err := t.relative(full)
	if err != nil {
		return nil, err
	}
	root, err := unix.Open(t.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", t.root, err)
	}
	defer unix.Close(root)
	dir, err := openParent(root, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	f, err := place{dir: dir, name: path.Base(rel)}.openRegular(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return endOf(f, int64(most))
}

// endOf reads the end of a file, which may be written concurrently.
func endOf(f *os.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, min(most, info.Size()))
	n, err := f.ReadAt(content, info.Size()-int64(len(content)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content[:n], nil
}
