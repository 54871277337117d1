package virtcontainers_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// hungDir is a directory whose file system answers nothing until the test ends.
func hungDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mountHung(t, dir)
	return dir
}

// mountHung mounts a file system that answers nothing until release, and the test's end
// at the latest.
func mountHung(t *testing.T, at string) (release func()) {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev)
	if err := unix.Mount("katabox-hung", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(dev)
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_ = unix.Unmount(at, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = unix.Close(dev)
	})
	t.Cleanup(release)
	return release
}

// shortly checks that what is called with a context ends with it.
func shortly(t *testing.T, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	if err := await(t, "the end of the call", ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want one of the deadline", err)
	}
}

// A checkpoint, or its key, on a file system that hangs is waited for as long as
// the caller allows.
func TestOpenHungCheckpoint(t *testing.T) {
	for name, place := range map[string]func(r *restoration, dir string){
		"checkpoint": func(r *restoration, dir string) { r.dir = dir },
		"key":        func(r *restoration, dir string) { r.config.Runtime.CheckpointKeyFile = filepath.Join(dir, "key") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t)
			s.saveAndEnd()
			r := s.restoration("next")
			place(r, hungDir(t))
			shortly(t, func(ctx context.Context) error {
				_, err := virtcontainers.OpenRestoration(ctx, r.dir, r.config, r.container)
				return err
			})
		})
	}
}

// A key on a file system that hangs does not keep a checkpoint waiting.
func TestCheckpointWithHungKey(t *testing.T) {
	s := saverOn(t, newHost(t), nil, func(o *virtcontainers.Options) { o.Config.Runtime.CheckpointKeyFile = filepath.Join(hungDir(t), "key") })
	s.says("before ")
	shortly(t, func(ctx context.Context) error {
		return s.c.Checkpoint(ctx, virtcontainers.CheckpointOptions{Dir: s.dir})
	})
	s.checkGoesOn()
}
