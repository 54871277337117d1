package maker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// waitEnv holds a directory: this program, run as a maker, describes itself
// there, and ends when the file "end" tells it to.
const waitEnv = "KATABOX_TEST_MAKER_DIR"

// alien is a file that the shim has open and a maker must not have.
const alien = "/etc/passwd"

func TestMain(m *testing.M) {
	if dir := os.Getenv(waitEnv); dir != "" && len(os.Args) > 1 && os.Args[1] == Command {
		if err := beMaker(dir); err != nil {
			_ = os.WriteFile(filepath.Join(dir, "error"), []byte(err.Error()), 0o600)
			os.Exit(3)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == KeeperCommand {
		if err := Keep(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func beMaker(dir string) error {
	lock, err := inherited()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := leavePod([]byte(os.Getenv(homeEnv)), name); err != nil {
		return err
	}
	facts, err := factsOfSelf()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), []byte(facts), 0o600); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "facts")); err != nil {
		return err
	}
	for {
		if end, err := os.ReadFile(filepath.Join(dir, "end")); err == nil {
			if string(end) != "" {
				return errors.New(string(end))
			}
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// factsOfSelf returns what a maker must have or must not have inherited from its
// shim.
func factsOfSelf() (string, error) {
	sid, err := unix.Getsid(0)
	if err != nil {
		return "", err
	}
	nice := 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return "", err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join("/proc/self/task", task.Name(), "stat"))
		if err != nil {
			return "", err
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[19-3] == "10" {
			nice++
		}
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return "", err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	var files []string
	for fd := range 200 {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err == nil && (fd <= inheritedFD || name == alien) {
			files = append(files, name)
		}
	}
	return fmt.Sprintf("leader=%v nice=%v oom=%s cwd=%s args=%q files=%v", sid == os.Getpid(), nice == len(tasks),
		strings.TrimSpace(string(score)), cwd, os.Args[2:], files), nil
}

// order starts a maker, and returns the directory by which the test controls it.
func order(t *testing.T) (wait func(context.Context) error, dir string, s factory.Store) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a maker's OOM score needs root where this process's is higher")
	}
	dir = t.TempDir()
	t.Setenv(waitEnv, dir)
	s = factory.Store{Dir: filepath.Join(t.TempDir(), "store")}
	lock, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(alien)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	wait, err = Start(virtcontainers.TemplateOrder{Config: "/etc/some.toml", Key: "wanted", Lock: lock.File(), Home: home})
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	return wait, dir, s
}

func end(t *testing.T, dir, how string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "how"), []byte(how), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "how"), filepath.Join(dir, "end")); err != nil {
		t.Fatal(err)
	}
}

func awaitFile(t *testing.T, path string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil {
			return string(text)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", path)
		}
	}
}

// A maker has its own session and the lock, and inherits nothing else from its
// shim.
func TestStart(t *testing.T) {
	wait, dir, s := order(t)
	got := awaitFile(t, filepath.Join(dir, "facts"))
	want := fmt.Sprintf(`leader=true nice=true oom=1000 cwd=/ args=["/etc/some.toml" "wanted"] files=[/dev/null /dev/null /dev/null %s]`,
		filepath.Join(s.Dir, "lock"))
	if got != want {
		t.Errorf("the maker is\n%s\nwant\n%s", got, want)
	}
	if _, err := s.Lock(); err == nil {
		t.Error("the lock is not the maker's")
	}
	end(t, dir, "")
	if err := wait(t.Context()); err != nil {
		t.Error(err)
	}
	l, err := s.Lock()
	if err != nil {
		t.Fatalf("the lock stays: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestMakerThatFails(t *testing.T) {
	wait, dir, _ := order(t)
	end(t, dir, "bad")
	if err := wait(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("wait: %v", err)
	}
}

// A shim that ends does not wait for its maker, and the maker continues.
func TestNobodyWaits(t *testing.T) {
	wait, dir, s := order(t)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- wait(ctx) }()
	_ = awaitFile(t, filepath.Join(dir, "facts"))
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if _, err := s.Lock(); err == nil {
		t.Error("the maker has ended")
	}
	end(t, dir, "")
	for {
		if l, err := s.Lock(); err == nil {
			_ = l.Close()
			break
		}
		runtime.Gosched()
	}
	var status unix.WaitStatus // of this test's child, which is not reaped elsewhere
	if _, err := unix.Wait4(-1, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		t.Errorf("the maker ended with %v, %v", status.ExitStatus(), err)
	}
}

func TestRunRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		home string
	}{
		"by hand": {[]string{"", ""}, ""}, "too few": {[]string{""}, "0::/"}, "too many": {[]string{"a", "b", "c"}, "0::/"},
	} {
		t.Setenv(homeEnv, tt.home)
		if err := Run(t.Context(), slices.Clone(tt.args), virtcontainers.Platform{}); err == nil || !strings.Contains(err.Error(), "kata-runtime factory init") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
