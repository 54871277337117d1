package service

import (
	"testing"

	"github.com/containerd/errdefs"
)

// hookRuntime is a runtime that can have hooks.
type hookRuntime struct {
	fakeRuntime
	dir string
}

func (r *hookRuntime) SetHooks(dir string) error {
	r.dir = dir
	return nil
}

func TestSetHooks(t *testing.T) {
	with := &hookRuntime{}
	for _, r := range []Runtime{&fakeRuntime{}, with} {
		p := &Pod{config: Config{Runtime: r}}
		if err := p.setHooks(""); err != nil {
			t.Errorf("%T: %v", r, err)
		}
		if err := p.setHooks("/hooks"); errdefs.IsNotImplemented(err) == (r == with) {
			t.Errorf("%T: %v", r, err)
		}
	}
	if with.dir != "/hooks" {
		t.Errorf("the runtime's hooks are in %q", with.dir)
	}
}
