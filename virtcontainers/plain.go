package virtcontainers

import (
	"context"
	"slices"
)

// startPlain has the machine start with the plain one's size, and grow, if only
// the size distinguishes the two: so that one template, and one pool, serves pods
// whose annotations want more vCPUs or memory. A machine that continues from a saved
// one starts as that one did.
func (s *Sandbox) startPlain(ctx context.Context) {
	if f := s.opts.Config.Factory; s.opts.Restore == nil && (!f.Template && f.VMs == 0 || s.template.never) {
		return
	}
	undo, ok := s.sizing.StartPlain()
	if ok && !s.continuesAnother(ctx) {
		undo()
	}
}

// continuesAnother reports whether the machine is the one with which templates and
// spares start, or the saved one with which the sandbox's continues.
func (s *Sandbox) continuesAnother(ctx context.Context) bool {
	is, err := s.platform.Monitor.Describe(s.spec(nil))
	if err != nil {
		return false // it fails the boot
	}
	if r := s.opts.Restore; r != nil {
		return slices.Equal(is, r.from.Record.Machine.Description)
	}
	plain, err := s.plain(ctx)
	if err != nil {
		return false
	}
	want, err := s.platform.Monitor.Describe(plain.spec(nil))
	return err == nil && slices.Equal(is, want)
}
