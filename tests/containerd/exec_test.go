package containerd

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

func TestExecHasItsOwnProcess(t *testing.T) {
	tests := []struct {
		name   string
		change func(*specs.Process)
		script string
		want   string
	}{
		{
			name:   "env",
			change: func(p *specs.Process) { p.Env = append(p.Env, "WORD=two words") },
			script: `echo "$WORD"`, want: "two words",
		},
		{
			name:   "cwd",
			change: func(p *specs.Process) { p.Cwd = "/home/app" },
			script: "pwd", want: "/home/app",
		},
		{
			name: "user",
			change: func(p *specs.Process) {
				p.User = specs.User{UID: image.AppUID, GID: image.AppGID, AdditionalGids: []uint32{image.OperatorGID}}
			},
			script: "id -u; id -g; id -G", want: "1000\n1000\n1000 37",
		},
		{
			// CAP_KILL is 5, CAP_NET_BIND_SERVICE 10 (capabilities(7)).
			name:   "capabilities",
			change: func(p *specs.Process) { p.Capabilities = onlyCaps("CAP_KILL", "CAP_NET_BIND_SERVICE") },
			script: "grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status",
			want:   "CapPrm:\t0000000000000420\nCapEff:\t0000000000000420\nCapBnd:\t0000000000000420",
		},
		{
			name:   "no new privileges",
			change: func(p *specs.Process) { p.NoNewPrivileges = true },
			script: "grep NoNewPrivs /proc/self/status", want: "NoNewPrivs:\t1",
		},
		{
			// Not RLIMIT_NOFILE: runc 1.1 loses its soft limit.
			name: "resource limit",
			change: func(p *specs.Process) {
				p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1024, Hard: 4096}}
			},
			script: "grep core /proc/self/limits | tr -s ' '", want: "Max core file size 1024 4096 bytes",
		},
	}
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := idle(ctx, t, newPod(ctx, t, d))
		for _, test := range tests {
			got := execOut(ctx, t, c, harness.ExecConfig{Args: script(test.script), Spec: test.change})
			if diff := cmp.Diff(test.want, strings.TrimSpace(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		}
	})
}

func onlyCaps(names ...string) *specs.LinuxCapabilities {
	return &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
}

// An exec that was never started can be removed, and one in a stopped container
// is refused.
func TestExecAtTheWrongTime(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := idle(ctx, t, newPod(ctx, t, d))
		p, err := c.Exec(ctx, harness.ExecConfig{Args: script("true")})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Remove(ctx); err != nil {
			t.Errorf("remove an exec that was not started: %v", err)
		}
		if _, err := c.KillAndWait(ctx); err != nil {
			t.Fatal(err)
		}
		late, err := c.Exec(ctx, harness.ExecConfig{Args: script("true")})
		if err == nil {
			err = late.Start(ctx)
		}
		if err == nil {
			t.Error("an exec in a stopped container was started")
		}
	})
}
