package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// The debug consoles of pods that start from one template are each the pod's own.
// Without the setting a pod neither starts from that template nor on a spare of
// it, and has no console.
func TestDebugConsoleOfClones(t *testing.T) {
	for name, spares := range map[string]int{"template": 0, "pool": 1} {
		t.Run(name, func(t *testing.T) {
			needVM(t)
			dir, image := filepath.Join(t.TempDir(), "templates"), debugImage(t)
			use := func(o *harness.Options) {
				o.Kata.Initrd = image
				o.Kata.Extra = fmt.Sprintf("[agent.kata]\ndebug_console_enabled = true\n[factory]\nenable_template = true\ntemplate_path = %q\nvm_cache_number = %d\n", dir, spares)
			}
			newestOwn(t, use, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				t.Cleanup(func() { destroySpares(t, d, dir) })
				key := makeTemplate(ctx, t, d)
				var clones []*harness.Container
				for i := range 2 {
					if spares > 0 && i == 0 {
						startIdle(ctx, t, d) // orders them
					}
					awaitSpares(ctx, t, d, spares)
					mark := d.LogSize()
					c, template := startIdle(ctx, t, d)
					if line := poolBootLine(t, d, mark); template != key || !strings.Contains(line, fmt.Sprintf("spare=%t", spares > 0)) {
						t.Fatalf("want a pod of template %s, of %d spares: %s", key, spares, line)
					}
					clones = append(clones, c)
				}
				checkOwnConsoles(ctx, t, d, clones)
				awaitSpares(ctx, t, d, spares)
				checkNoConsole(ctx, t, d)
			})
		})
	}
}

// debugImage returns the guest image with tools.
func debugImage(t *testing.T) string {
	t.Helper()
	initrd := filepath.Join(bed.layout.Build(), "guest-debug", "initrd.img")
	if _, err := os.Stat(initrd); err != nil {
		t.Skipf("no guest image with tools (make guest-image-debug): %v", err)
	}
	return initrd
}

// checkOwnConsoles checks that each pod's console is of its own guest.
func checkOwnConsoles(ctx context.Context, t *testing.T, d *harness.Daemon, pods []*harness.Container) {
	t.Helper()
	const leave = "test ! -e /run/mark || cat /run/mark; cat >/run/mark; cat /proc/1/comm; exit 7"
	for _, c := range pods {
		if out, code := debugIn(ctx, t, d, c.Box.ID(), c.Box.ID(), "sh", "-c", leave); out != "init\n" || code != 7 {
			t.Errorf("a command in %s: %q, %d", c.Box.ID(), out, code)
		}
	}
	for _, c := range pods {
		if out, code := debugIn(ctx, t, d, c.Box.ID(), "cat /run/mark\n"); out != c.Box.ID() || code != 0 {
			t.Errorf("a shell in %s: %q, %d", c.Box.ID(), out, code)
		}
	}
}

// checkNoConsole starts a pod with the setting turned off.
func checkNoConsole(ctx context.Context, t *testing.T, d *harness.Daemon) {
	t.Helper()
	text, err := os.ReadFile(d.KataConfigPath())
	if err == nil {
		off := strings.Replace(string(text), "debug_console_enabled = true", "debug_console_enabled = false", 1)
		err = os.WriteFile(d.KataConfigPath(), []byte(off), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	mark := d.LogSize()
	c, template := startIdle(ctx, t, d)
	if line := poolBootLine(t, d, mark); template != "" || !strings.Contains(line, "spare=false") {
		t.Errorf("a pod without a debug console: %s", line)
	}
	if out, code := debugIn(ctx, t, d, c.Box.ID(), "", "true"); code != 1 || !strings.Contains(out, "debug_console_enabled") {
		t.Errorf("a command in a pod without a debug console: %q, %d", out, code)
	}
}
