package service

import "testing"

func TestSetHooks(t *testing.T) {
	r := &fakeRuntime{hooks: "as before"}
	p := &Pod{config: Config{Runtime: r}}
	if err := p.setHooks(""); err != nil || r.hooks != "as before" {
		t.Errorf("no directory: hooks in %q, %v", r.hooks, err)
	}
	if err := p.setHooks("/hooks"); err != nil || r.hooks != "/hooks" {
		t.Errorf("hooks in %q, %v", r.hooks, err)
	}
}
