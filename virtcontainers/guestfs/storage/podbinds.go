package storage

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// podBindsName is the share's directory for what is bound for the pod as a
// whole. No container can have that id.
const podBindsName = "sandbox-mounts"

// BindForPod makes directories and files of the host's appear in the share for
// as long as it lives, each as /sandbox-mounts/<last part of its path>. A path
// may end with ":ro" or ":rw"; the default is read-only.
func (s *Share) BindForPod(ctx context.Context, paths []string) error {
	if err := s.checkOpen(); err != nil {
		return fmt.Errorf("share mounts for the pod: %w", err)
	}
	names := map[string]string{}
	for _, p := range paths {
		source, writable := strings.CutSuffix(p, ":rw")
		source = strings.TrimSuffix(source, ":ro")
		name := path.Base(source)
		if other, taken := names[name]; taken {
			return fmt.Errorf("share mounts for the pod: %s and %s have the same name: %w", other, source, errdefs.ErrInvalidArgument)
		}
		names[name] = source
		bind := guestspec.Bind{ReadOnly: !writable, RecursiveReadOnly: !writable, Recursive: true, Slave: true}
		if _, err := s.bind(ctx, source, path.Join(podBindsName, name), bind); err != nil {
			return fmt.Errorf("share mount for the pod: %w", err)
		}
	}
	return nil
}
