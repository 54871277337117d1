package containerd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

const (
	// fileOpsSeeds is how many random sequences are played at a time, and
	// fileOpsCount how long each is. KATABOX_FILEOPS_SEED moves the first one.
	fileOpsSeeds = 4
	fileOpsCount = 3000
	fileOpsSeed  = "KATABOX_FILEOPS_SEED"
)

// The same random operations on files, in a container of runc and in one of
// ours, have the same results and leave the same files: in the root file system
// and in a volume, by several concurrent processes.
func TestFileOperations(t *testing.T) {
	needVM(t)
	if daemon := harness.ExternalVirtiofsd(); daemon != "" {
		t.Skipf("%s serves the share, and has differences of another kind", daemon)
	}
	tools := t.TempDir()
	compileC(t.Context(), t, "fileops", tools)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		want := playFileOps(ctx, t, d, harness.Runc, tools)
		got := playFileOps(ctx, t, d, harness.Kata, tools)
		for name, text := range want {
			sameLines(t, name, got[name], text)
		}
	})
}

// playFileOps returns what each sequence printed, by where it was played and
// its seed.
func playFileOps(ctx context.Context, t *testing.T, d *harness.Daemon, runtime harness.Runtime, tools string) map[string]string {
	t.Helper()
	volume := t.TempDir()
	if err := os.Chmod(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	bind := func(from, to string) specs.Mount {
		return specs.Mount{Type: "bind", Source: from, Destination: to, Options: []string{"rbind", "rw"}}
	}
	c, err := d.Create(ctx, harness.ContainerConfig{
		Name: "fileops", Args: []string{"sleep", "100000"}, Runtime: runtime,
		Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{bind(tools, "/tools"), bind(volume, "/volume")})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Remove(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return runFileOps(ctx, t, c, firstSeed(t))
}

func firstSeed(t *testing.T) int {
	t.Helper()
	first := 1
	if text := os.Getenv(fileOpsSeed); text != "" {
		if _, err := fmt.Sscan(text, &first); err != nil {
			t.Fatalf("%s: %v", fileOpsSeed, err)
		}
	}
	return first
}

// runFileOps plays all sequences concurrently.
func runFileOps(ctx context.Context, t *testing.T, c *harness.Container, first int) map[string]string {
	t.Helper()
	runs := make(map[string]*harness.Process)
	for seed := first; seed < first+fileOpsSeeds; seed++ {
		for _, place := range []string{"/volume", "/root"} {
			dir := fmt.Sprintf("%s/%d", place, seed)
			p, err := c.Exec(ctx, harness.ExecConfig{Args: script(fmt.Sprintf(
				"mkdir %[1]s && chmod 777 %[1]s && /tools/fileops %[1]s %[2]d %[3]d", dir, seed, fileOpsCount))})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(ctx); err != nil {
				t.Fatal(err)
			}
			runs[dir] = p
		}
	}
	texts := make(map[string]string)
	for dir, p := range runs {
		code, err := p.Wait(ctx)
		if err != nil || code != 0 {
			t.Fatalf("%s: exit code %d, %v: %s", dir, code, err, p.Err)
		}
		if err := p.Remove(ctx); err != nil {
			t.Error(err)
		}
		texts[dir] = p.Out.String()
	}
	return texts
}

// sameLines reports the first lines that differ, with those before them.
func sameLines(t *testing.T, name, got, want string) {
	t.Helper()
	const before, most = 5, 10
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	if len(gotLines) != len(wantLines) {
		t.Errorf("%s: %d lines, want %d", name, len(gotLines), len(wantLines))
	}
	differ := 0
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] == wantLines[i] {
			continue
		}
		if differ++; differ <= most {
			t.Errorf("%s: after\n%s\nprinted %q, want %q", name, strings.Join(wantLines[max(i-before, 0):i], "\n"), gotLines[i], wantLines[i])
		}
	}
	if differ > most {
		t.Errorf("%s: %d lines differ", name, differ)
	}
}
