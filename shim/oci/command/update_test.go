package command

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v3"
)

func to[T any](v T) *T { return &v }

// The flags of update give the resources that runc's give.
func TestUpdateFlags(t *testing.T) {
	for args, want := range map[string]specs.LinuxResources{
		"": {},
		"--memory 64M --memory-reservation 1.5gb --memory-swap -1": {Memory: &specs.LinuxMemory{
			Limit: to(int64(64 << 20)), Reservation: to(int64(3 << 29)), Swap: to(int64(-1))}},
		"--memory=67108864":    {Memory: &specs.LinuxMemory{Limit: to(int64(64 << 20))}},
		"--memory 64KiB":       {Memory: &specs.LinuxMemory{Limit: to(int64(64 << 10))}},
		"--memory -1":          {Memory: &specs.LinuxMemory{Limit: to(int64(-1))}},
		"--pids-limit -1":      {Pids: &specs.LinuxPids{Limit: to(int64(-1))}},
		"--blkio-weight 500":   {BlockIO: &specs.LinuxBlockIO{Weight: to(uint16(500))}},
		"--cpu-quota -1":       {CPU: &specs.LinuxCPU{Quota: to(int64(-1))}},
		"--cpu-burst 5":        {CPU: &specs.LinuxCPU{Burst: to(uint64(5))}},
		"--cpu-idle 1":         {CPU: &specs.LinuxCPU{Idle: to(int64(1))}},
		"--cpu-share 7 -- ":    {CPU: &specs.LinuxCPU{Shares: to(uint64(7))}},
		"--cpuset-cpus 0-1":    {CPU: &specs.LinuxCPU{Cpus: "0-1"}},
		"--cpu-period 1000000": {CPU: &specs.LinuxCPU{Period: to(uint64(1000000))}},
	} {
		got, err := parseUpdate(t, strings.Fields(args)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		empty := func(r *specs.LinuxResources) {
			if r.CPU == nil {
				r.CPU = &specs.LinuxCPU{}
			}
			if r.Memory == nil {
				r.Memory = &specs.LinuxMemory{}
			}
		}
		empty(&want)
		empty(got)
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
	for _, args := range []string{
		"--memory 64X", "--memory M", "--memory -2", "--memory nan", "--memory 1e30", "--memory 9999999p", "--memory-swap x", "--blkio-weight 65536", "--blkio-weight -1",
	} {
		name, _, _ := strings.Cut(args, " ")
		if r, err := parseUpdate(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(name, "--")) {
			t.Errorf("%s: %+v, %v", args, r, err)
		}
	}
}

func parseUpdate(t *testing.T, args ...string) (resources *specs.LinuxResources, err error) {
	t.Helper()
	c := updateCommand()
	SetConventions(c)
	c.Action = func(_ context.Context, c *cli.Command) (err error) {
		resources, err = resourcesOf(c)
		return err
	}
	c.ErrWriter, c.Writer = new(strings.Builder), new(strings.Builder)
	err = c.Run(t.Context(), append([]string{"update"}, args...))
	return resources, err
}
