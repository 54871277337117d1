package virtcontainers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/vmuser"
)

// vmUsersFile is the file, in Platform.RunDir, on which machines' user ids are
// locked.
const vmUsersFile = "vm-users"

// jail is what a confined VMM owns on the host.
type jail struct {
	user *vmuser.User // nil if the host has none for it
	// memoryDir is the directory for memory in files; empty for none.
	memoryDir string
}

// uid returns the VMM's user id; 0 is the shim's.
func (j *jail) uid() uint32 {
	if j.user == nil {
		return 0
	}
	return j.user.ID()
}

// openJail reserves a user id for the VMM, and makes what that user owns.
func (m *machine) openJail(ctx context.Context) error {
	h := m.config.Hypervisor
	if !h.Rootless {
		return nil
	}
	j := &jail{}
	ids := vmuser.Range{First: h.FirstUID, Count: h.UIDs}
	if vmuser.Usable(ids) {
		var err error
		if j.user, err = vmuser.Take(filepath.Join(m.platform.RunDir, vmUsersFile), ids); err != nil {
			return err
		}
	} else {
		log.G(ctx).Warnf("QEMU cannot run as a dedicated user: user ids from %d on (hypervisor.qemu.rootless_first_uid) are not mapped into this user namespace", ids.First)
	}
	if err := j.makeMemoryDir(h.Memory.Dir, m.platform.Owner.Name(m.id), m.state); err != nil {
		return errors.Join(err, j.close())
	}
	m.jail = j
	return nil
}

// makeMemoryDir makes a directory in dir for this machine alone, whose name begins
// with name and is in its record: the VMM sees no other machine's files.
func (j *jail) makeMemoryDir(dir, name string, state *persist.Store) error {
	if dir == "" {
		return nil
	}
	// Others may make files in dir, which often is /dev/shm.
	dir = filepath.Join(dir, name+"-"+rand.Text()[:8])
	if err := state.Update(func(r *persist.Record) { r.MemoryDir = dir }); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for memory (hypervisor.qemu.file_mem_backend): %w", err)
	}
	j.memoryDir = dir
	if err := os.Chown(dir, int(j.uid()), int(j.uid())); err != nil {
		return fmt.Errorf("give directory for memory to QEMU's user: %w", err)
	}
	return nil
}

// closeJail releases what openJail reserved, unless the machine has not ended: no other
// may run as its user.
func (m *machine) closeJail(context.Context) error {
	if m.stays {
		return nil
	}
	return m.jail.close()
}

// close releases what openJail reserved; the VMM must have ended. For a nil
// jail it does nothing.
func (j *jail) close() error {
	if j == nil {
		return nil
	}
	var errs []error
	if j.memoryDir != "" {
		errs = append(errs, os.RemoveAll(j.memoryDir))
	}
	if j.user != nil {
		errs = append(errs, j.user.Release())
	}
	return errors.Join(errs...)
}
