package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// memoryDir is where the daemon's pods have the memory of those that hibernate. The
// daemon's directory may be in memory, which is refused.
func memoryDir(d *harness.Daemon) string { return filepath.Join("/var/tmp", d.Tag()+"-memory") }

// hibernating lets the pods hibernate.
func hibernating(t *testing.T, d *harness.Daemon) {
	t.Helper()
	hibernatingIn(t, d, memoryDir(d))
	t.Cleanup(func() { _ = os.Remove(memoryDir(d)) })
}

// hibernatingIn lets the pods hibernate, with their memory in a directory. It is no
// template's.
func hibernatingIn(t *testing.T, d *harness.Daemon, dir string) {
	t.Helper()
	dropIn(t, d, "60-hibernate", fmt.Sprintf("[runtime]\nhibernate_path = %q\n[factory]\nenable_template = false\n", dir))
}

// openSleeper makes a pod with a service, and has it checked at the end that
// nothing of its memory is on the disk.
func (s *scene) openSleeper(ctx context.Context) (*harness.Container, error) {
	s.checks = append(s.checks, func(context.Context) error { return emptyDir(memoryDir(s.d)) })
	if err := s.openPod(ctx); err != nil {
		return nil, err
	}
	return s.service(ctx, idle)
}

// emptyDir checks that there is nothing in a directory, which may be missing.
func emptyDir(dir string) error {
	left, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if len(left) > 0 {
		err = fmt.Errorf("%s has %v, want nothing", dir, left)
	}
	return err
}

// kataRuntime has kata-runtime do something to the pod. It is killed when ctx ends.
func (s *scene) kataRuntime(ctx context.Context, verb string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.d.Layout().Bin(), "kata-runtime"), verb, s.pod.Sandbox.Box.ID())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kata-runtime %s: %w: %s", verb, err, out)
	}
	return nil
}

// playHibernating strikes while the pod's memory is written to the disk.
func playHibernating(ctx context.Context, s *scene) error {
	if _, err := s.openSleeper(ctx); err != nil {
		return err
	}
	some := s.someBytes()
	_, err := s.at(ctx, memoryDir(s.d), []stage{
		{"before the memory is written", func(p progress) bool { return p.open }},
		{"while the memory is written", func(p progress) bool { return p.size >= some }},
	}, func(ctx context.Context) error { return s.kataRuntime(ctx, "hibernate") })
	if err == nil && s.victim.bomb != "" {
		// Until then the bomb's word waits. It may kill before there is an answer.
		_ = s.kataRuntime(ctx, "wake")
	}
	return err
}

// playWaking strikes while the memory of a pod that hibernates is read back: for
// kata-runtime, or for an exec.
func playWaking(ctx context.Context, s *scene) error {
	c, err := s.openSleeper(ctx)
	if err != nil {
		return err
	}
	if err := s.kataRuntime(ctx, "hibernate"); err != nil {
		return err
	}
	wake := func(ctx context.Context) error { return s.kataRuntime(ctx, "wake") }
	if s.random.IntN(2) == 0 {
		wake = func(ctx context.Context) error {
			_, err := s.exec(ctx, c, nil, "sleep 100000")
			return err
		}
	}
	some := s.someBytes()
	_, err = s.at(ctx, memoryDir(s.d), []stage{
		{"before the memory is read", func(p progress) bool { return p.open }},
		{"while the memory is read", func(p progress) bool { return p.at >= some || !p.open }},
		{"after the memory was read", func(p progress) bool { return !p.open }},
	}, wake)
	return err
}
