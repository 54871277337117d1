package service

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// filesDir returns the directory for copies of the host's files, below the
// pod's directory.
func filesDir(config Config) string {
	return filepath.Join(config.RunDir, strings.TrimPrefix(api.GuestFilesDir, api.GuestRunDir))
}

// filesOptions are the mount options of that directory: it can be traversed,
// but not listed, by all users.
var filesOptions = []string{"nosuid", "nodev", "mode=0711"}

// ChangeFiles implements the Guest service.
func (s guestService) ChangeFiles(ctx context.Context, req *api.ChangeFilesRequest) (*api.ChangeFilesResponse, error) {
	if err := s.pod.changeFiles(ctx, req); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.ChangeFilesResponse{}, nil
}

func (p *Pod) changeFiles(ctx context.Context, req *api.ChangeFilesRequest) error {
	if err := p.checkOpen(); err != nil {
		return fmt.Errorf("change files: %w", err)
	}
	if size := proto.Size(req); size > api.MaxChangeFiles {
		return fmt.Errorf("change files: the request has %d bytes, want at most %d: %w", size, api.MaxChangeFiles, errdefs.ErrInvalidArgument)
	}
	if err := p.mountFiles(ctx); err != nil {
		return err
	}
	return p.files.Change(ctx, req.GetChanges())
}

// ReadFile implements the Guest service.
func (s guestService) ReadFile(_ context.Context, req *api.ReadFileRequest) (*api.ReadFileResponse, error) {
	content, err := s.pod.readFile(req)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.ReadFileResponse{Content: content}, nil
}

func (p *Pod) readFile(req *api.ReadFileRequest) ([]byte, error) {
	if err := p.checkOpen(); err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return p.files.ReadEnd(req.GetPath(), req.GetBytes())
}

// mountFiles ensures that copies of files have their own file system, whose
// size the kernel bounds.
func (p *Pod) mountFiles(ctx context.Context) error {
	p.mu.Lock()
	mounted := p.filesMounted
	p.mu.Unlock()
	if mounted {
		return nil
	}
	release, err := p.holdMounts(ctx)
	if err != nil {
		return err
	}
	defer release()
	return p.mountFilesAlone(ctx)
}

// mountFilesAlone is mountFiles for callers that hold the mounts.
func (p *Pod) mountFilesAlone(ctx context.Context) error {
	s := &api.Storage{Driver: "tmpfs", Target: filesDir(p.config), Options: filesOptions}
	if err := p.mountMissing(ctx, []*api.Storage{s}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filesMounted = true
	return nil
}
