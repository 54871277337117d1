package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// sceneTimeout bounds a scene with one runtime.
const sceneTimeout = 9 * time.Minute

// bed is what all tests share.
var bed struct {
	layout  harness.Layout
	runtime harness.Runtime
	// archive holds the images for "load".
	archive string
	// ask is a client for containers (package ask).
	ask string
}

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: container engines need root")
		os.Exit(0)
	}
	os.Exit(host.RunTests(m, prepare, removeCgroups))
}

func prepare() (err error) {
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if bed.runtime, err = harness.RuntimeFromEnv(); err != nil {
		return err
	}
	if bed.archive, err = image.Build(context.Background(), filepath.Join(bed.layout.Build(), "images")); err != nil {
		return err
	}
	if err := buildAsk(); err != nil || !bed.runtime.VM {
		return err
	}
	// Where a user has it; the private host's /etc is not the machine's.
	if err := os.MkdirAll(filepath.Dir(kataConfigPath), 0o755); err != nil {
		return fmt.Errorf("configure the runtime: %w", err)
	}
	return kataConfig.Write(bed.layout, kataConfigPath)
}

// buildAsk builds the client that scenes mount into containers.
func buildAsk() error {
	bed.ask = filepath.Join(workDir, "ask")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", bed.ask, "./tests/engines/ask")
	cmd.Dir, cmd.Env = bed.layout.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the client of containers: %w: %s", err, out)
	}
	return nil
}

func TestNerdctl(t *testing.T)  { playAll(t, startNerdctl) }
func TestDocker28(t *testing.T) { playAll(t, startDocker28) }
func TestDocker20(t *testing.T) { playAll(t, startDebianDocker) } // 26.1 on Debian 13
func TestPodman(t *testing.T)   { playAll(t, startPodman) }

// starter starts an engine with the images of an archive.
type starter func(ctx context.Context, l harness.Layout, archive string) (Engine, error)

// started starts an engine, and stops it at the test's end, when the host must be
// as it was.
func started(t *testing.T, start starter) Engine {
	t.Helper()
	before, err := readHostState()
	if err != nil {
		t.Fatal(err)
	}
	e, err := start(t.Context(), bed.layout, bed.archive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), settled(ctx, before)); err != nil {
			t.Errorf("stop %s: %v", e.Name(), err)
		}
	})
	return e
}

// playAll starts an engine, plays every scene with both runtimes, and compares.
func playAll(t *testing.T, start starter) {
	e := started(t, start)
	seen, played := map[int]bool{}, 0
	all := scenes()
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			played++
			if sc.needs != "" && !has(e, sc.needs) {
				t.Skipf("%s has no %s", e.Name(), sc.needs)
			}
			if testing.Short() && !sc.short {
				t.Skip("not one of the short scenes")
			}
			compareScene(t, e, sc, seen)
		})
	}
	if bed.runtime.VM && played == len(all) && !testing.Short() {
		for _, complaint := range unseen(e.Name(), known, seen) {
			t.Error(complaint)
		}
	}
}

// compareScene plays a scene with runc, and with Katabox unless the suite is
// for runc alone. A scene with complaints is repeated once, and the first try
// shown: on a busy machine engines sometimes lose a line of output, even with
// runc.
func compareScene(t *testing.T, e Engine, sc scene, seen map[int]bool) {
	first := tryScene(t, e, sc, seen)
	if len(first) == 0 || t.Failed() {
		return
	}
	t.Logf("played once more, since the first time:\n%s", strings.Join(first, "\n"))
	for _, complaint := range tryScene(t, e, sc, seen) {
		t.Error(complaint)
	}
}

// tryScene plays a scene with each runtime and returns what is wrong.
func tryScene(t *testing.T, e Engine, sc scene, seen map[int]bool) []string {
	runc, complaints := playScene(t, e, harness.Runc, sc)
	if !bed.runtime.VM {
		return complaints
	}
	kata, more := playScene(t, e, harness.Kata, sc)
	return slices.Concat(complaints, more, compare(e.Name(), runc, kata, known, seen))
}

// playScene plays a scene with one runtime and removes what it made. It returns
// the rows, and what is wrong with the scene itself; a leak fails the test.
func playScene(t *testing.T, e Engine, r harness.Runtime, sc scene) (sheet, []string) {
	ctx, cancel := context.WithTimeout(t.Context(), sceneTimeout)
	defer cancel()
	s := &stage{t: t, engine: e, runtime: r, scene: sc.name, rows: sheet{}}
	mark := size(e.LogPath())
	sc.play(ctx, s)
	s.clear(context.WithoutCancel(ctx))
	if err := host.PodsGone(context.WithoutCancel(ctx)); err != nil {
		t.Errorf("after the scene with %s: %v", r.Name, err)
	}
	if t.Failed() {
		t.Logf("%s's log:\n%s", e.Name(), since(e.LogPath(), mark))
	}
	return s.rows, s.complaints
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// since returns the end of a log's content after offset bytes.
func since(path string, offset int64) string {
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) < offset {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data[offset:])), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
