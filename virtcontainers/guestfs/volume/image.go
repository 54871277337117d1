package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	imageName = "disk.img"
	imageType = "ext4"
	// maxImage bounds an image, in bytes. An image is as large as the host's
	// file system, so that the guest does not run out of blocks first. It is
	// sparse, but what mke2fs writes grows with its size: 12 MB for 1 TiB.
	maxImage = 1 << 40
	// makeTimeout bounds one program. Each writes little.
	makeTimeout = time.Minute
)

// imageOf returns the disk of an emptyDir. Blocks that the guest frees are
// returned to the host.
func imageOf(dir string) Disk {
	return Disk{Path: filepath.Join(dir, imageName), Fstype: imageType, Options: []string{"discard"}}
}

// MakeImage makes the file of an Image volume, with an empty file system whose
// root has the mode and owner of the file's directory, unless it exists. It may
// be called concurrently for one volume. It blocks while it runs mkfs.ext4 and
// debugfs, a minute each at most.
func MakeImage(d Disk) error {
	if err := makeImage(d.Path); err != nil {
		return fmt.Errorf("make volume image %s: %w", d.Path, err)
	}
	return nil
}

func makeImage(path string) error {
	switch err := checkImage(path); {
	case err == nil, !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+imageName+"-*") // its mode is 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	// What has the name is whole, also after a host that has lost its power: the volume
	// outlives it.
	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	// Unlike rename(2), link(2) does not replace an image that another call has
	// made, which may be in use.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// checkImage refuses an existing file that is not one of our images: while the
// directory was in a share, a container could make symbolic links in it.
func checkImage(path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("it exists and is not a regular file: mode %v: %w", info.Mode(), errdefs.ErrFailedPrecondition)
	}
	return err
}

// fill makes an empty file the image of its directory.
func fill(f *os.File) error {
	dir := filepath.Dir(f.Name())
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	size, err := imageSize(dir)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := makeFileSystem(f.Name(), st.Uid, st.Gid); err != nil {
		return err
	}
	return adjustRoot(f.Name(), st.Mode)
}

// imageSize is the size of the file system that dir is on.
func imageSize(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := min(st.Blocks*uint64(st.Bsize), maxImage)
	return int64(size &^ (blockSize - 1)), nil
}

// blockSize is that of the file system, in bytes.
const blockSize = 4096

// journalMiB is the size of the journal. There is one because the volume
// outlives its machine: the kubelet may recreate the pod's sandbox. It is small
// because the kubelet counts the blocks that the guest has written.
const journalMiB = 16

// makeFileSystem runs mkfs.ext4. The file system does not grow (resize_inode),
// nor keep blocks for root. The file is sparse: inode tables and journal are
// left unwritten, and the guest does not write them either (for inode tables
// mke2fs arranges that).
func makeFileSystem(path string, uid, gid uint32) error {
	_, err := run("mkfs.ext4", nil, "-q", "-F", "-b", strconv.Itoa(blockSize), "-m", "0",
		"-O", "^resize_inode", "-J", fmt.Sprintf("size=%d", journalMiB),
		"-E", fmt.Sprintf("lazy_journal_init=1,root_owner=%d:%d", uid, gid), path)
	return err
}

// adjustRoot gives the root directory its mode, which mke2fs before 1.47.1
// cannot, and removes lost+found: an emptyDir is empty.
func adjustRoot(path string, mode uint32) error {
	commands := fmt.Sprintf("rmdir lost+found\nset_inode_field / mode %#o\n", mode)
	stderr, err := run("debugfs", strings.NewReader(commands), "-w", "-f", "-", path)
	if err != nil {
		return err
	}
	// debugfs exits with 0 even if its commands failed, and writes its version
	// first.
	if _, said, _ := strings.Cut(stderr, "\n"); strings.TrimSpace(said) != "" {
		return fmt.Errorf("debugfs: %s", strings.TrimSpace(said))
	}
	return nil
}

// run runs a program of e2fsprogs, and returns what it wrote to stderr.
func run(name string, stdin io.Reader, args ...string) (string, error) {
	program, err := find(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), makeTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	// A program that was killed may have left stderr to a child.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stderr.String(), nil
}

// find also searches distributions' usual directories: an engine's PATH may
// lack sbin.
func find(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if program, err := exec.LookPath(path); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("a volume on its own disk needs %s (Debian: apt install e2fsprogs): %w", name, errdefs.ErrFailedPrecondition)
}
