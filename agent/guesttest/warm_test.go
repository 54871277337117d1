package guesttest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
)

// warmUp is what became of warming up this guest, twice, before it had a pod, and
// what there was after each.
var warmUp struct {
	errs [2]error
	left [2][]string
}

// warm warms up the guest, and prints how long that takes.
func (m *machine) warm(ctx context.Context) {
	for i := range warmUp.errs {
		began := time.Now()
		_, warmUp.errs[i] = m.guest.WarmUp(ctx, &api.WarmUpRequest{})
		fmt.Println("warmed up in", time.Since(began))
		warmUp.left[i] = traces()
	}
}

// traces lists the mounts, cgroups, files of /run and processes with a program.
func traces() (list []string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	list = strings.Split(string(mounts), "\n")
	for _, dir := range []string{"/run", "/sys/fs/cgroup"} {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && (dir == "/run" || e.IsDir()) {
				list = append(list, path)
			}
			return nil
		})
	}
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range programs {
		if program, err := os.Readlink(link); err == nil { // else a thread of the kernel
			list = append(list, filepath.Dir(link)+" "+program)
		}
	}
	return list
}

func TestGuestWarmUp(t *testing.T) {
	m := guestOnly(t)
	for i, err := range warmUp.errs {
		if err != nil {
			t.Errorf("warm-up %d: %v", i+1, errgrpc.ToNative(err))
		}
	}
	// What all containers share stays after the first.
	if diff := cmp.Diff(warmUp.left[0], warmUp.left[1]); diff != "" {
		t.Errorf("what the second leaves (-before +after):\n%s", diff)
	}
	for _, line := range warmUp.left[0] {
		if strings.Contains(line, "warm-up") {
			t.Errorf("left behind: %s", line)
		}
	}
	if _, err := m.guest.WarmUp(t.Context(), &api.WarmUpRequest{}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("with a pod: %v", err)
	}
}
