package task_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A restarted containerd finds the shim of each container in its bundle.
func TestServiceKeepsShimPath(t *testing.T) {
	const file, pods, own = "shim-binary-path", "/opt/kata/bin/containerd-shim-kata-v2", "/another/shim"
	for _, tt := range []struct{ name, pod, before, want string }{
		{"containerd 2", pods, "", pods},
		{"containerd 1", pods, own, own},
		{"another engine", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShim(t, nil)
			s.create(t, sandboxID)
			r := s.request(t, "service")
			for path, text := range map[string]string{
				filepath.Join(filepath.Dir(r.Bundle), sandboxID, file): tt.pod, filepath.Join(r.Bundle, file): tt.before,
			} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(r.Bundle, file))
			if string(got) != tt.want || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the service's file: %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
