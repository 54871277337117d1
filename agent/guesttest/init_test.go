package guesttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// initLook prints all that a container's first process can see of its start.
// What it tries to write changes nothing.
const initLook = `
echo == about` + about + `
echo == files; stat -c '%N %F %a %u:%g' $(find / -xdev -path /bin -prune -o -print | sort)
echo == mountinfo; cat /proc/self/mountinfo
echo == mount points; stat -c '%n %F %a %u:%g' $(cut -d' ' -f5 /proc/self/mountinfo | sort -u)
echo == nodes; stat -c '%N %F %a %u:%g %t:%T' $(find /dev | sort)
echo == terminal; stty -a
echo == process; cd /proc/$$
grep -vE '^(Vm|Rss|Huge|Pid|Tgid|PPid|NS|Ngid|State|SigQ|Threads|FDSize|.*ctxt)' status
cat limits uid_map gid_map setgroups coredump_filter timerslack_ns; tr '\0' '\n' <environ
stat -c %N fd/* exe root; grep flags fdinfo/*
echo == keys; grep "_ses.$CONTAINER:" /proc/keys | while read serial flags usage rest; do echo $flags $rest; done
echo == names; hostname; cd /proc/sys && grep . kernel/hostname kernel/domainname kernel/sem kernel/shm* kernel/msgm* fs/mqueue/*
echo == cgroup; cd /sys/fs/cgroup && stat -c '%n %F %a %u:%g' . cgroup.procs cgroup.subtree_control
grep -s . cgroup.type cgroup.controllers cgroup.subtree_control cpu.idle cpu.weight cpuset.cpus memory.oom.group *.max *.min *.low *.high *.burst
echo == masked
for f in /proc/acpi /proc/kcore /proc/keys /proc/scsi /proc/timer_list /sys/firmware; do echo $f; head -c 1 $f | wc -c; ls -A $f; done
echo == written
for f in /proc/sys/vm/overcommit_memory /proc/sys/kernel/shmmni /proc/sysrq-trigger /proc/irq/default_smp_affinity /sys/kernel/mm/ksm/run /etc/passwd; do (: >>$f) && echo $f; done
for d in / /tmp /dev /etc /sys /sys/fs/cgroup /volumes/*; do mkdir $d/made && rmdir $d/made && echo $d; done
echo == rules
for d in 'c 1 3' 'c 1 9' 'c 1 11' 'c 5 0' 'c 5 1' 'c 5 2' 'c 10 200' 'c 10 229' 'c 136 0' 'b 8 0'; do
	mknod /dev/made $d && echo made $d; (: </dev/made) && echo read; (: >/dev/made) && echo wrote; rm -f /dev/made
done
echo == end
`

// initCase is a container that is started by both ways.
type initCase struct {
	change func(*specs.Spec)
	// sharesPID is set when it joins the PID namespace of the pod's first
	// container.
	sharesPID bool
}

// Both ways of starting a container's init must come to the same, whatever the
// container is.
func TestGuestInitIsAsByStage(t *testing.T) {
	m := guestOnly(t)
	cases := initCases()
	for name, change := range volumeCases() {
		cases[name] = initCase{change: change}
	}
	for _, name := range drawn(t, slices.Sorted(maps.Keys(cases))) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			if c.sharesPID {
				m.pause(t, "first")
			}
			own, stage := m.look(t, "own-"+name, c, func(*specs.Process) {}), m.look(t, "stage-"+name, c, byStage)
			if diff := cmp.Diff(stage, own); diff != "" {
				t.Errorf("-by stage +own: %s", diff)
			}
			if !strings.Contains(own, "\n== end\n") || !strings.Contains(own, "leads its session") && name != "no proc" {
				t.Errorf("the container did not see its start: %s", own)
			}
		})
	}
}

// look starts a container that looks at its start, and returns what is seen of
// it from both sides, with what differs from one start to the next replaced.
func (m *machine) look(t *testing.T, id string, c initCase, by func(*specs.Process)) string {
	t.Helper()
	defer freshRoot(t)()
	spec := initSpec(initLook)
	c.change(spec)
	by(spec.Process)
	id = strings.ReplaceAll(id, " ", "-")
	words := newStartWords(t, id)
	req := &taskapi.CreateTaskRequest{
		ID: id, Terminal: spec.Process.Terminal, Stdout: "y", Stderr: "y",
		Options: packedConfig(t, &api.ContainerConfig{Spec: words.fill(t, spec), SharePidNamespace: c.sharesPID}),
	}
	if req.Terminal {
		req.Stdin, req.Stderr = "y", ""
	}
	created, err := m.task.Create(t.Context(), req)
	if err != nil {
		return words.replace(err.Error())
	}
	var seen strings.Builder
	for _, file := range []string{"mountinfo", "cgroup", "oom_score_adj", "uid_map", "loginuid", "sessionid"} {
		fmt.Fprintf(&seen, "== created: %s\n%s\n", file, fileIn(t, fmt.Sprintf("/proc/%d/%s", created.GetPid(), file)))
	}
	out, errs, status := m.startAndRead(t, id, req.GetTerminal())
	fmt.Fprintf(&seen, "== output\n%s\n== errors\n%s\n== status %d\n", out, errs, status)
	return words.replace(seen.String())
}

// startAndRead starts a created container, waits for its end and deletes it.
func (m *machine) startAndRead(t *testing.T, id string, terminal bool) (out, errs string, status uint32) {
	t.Helper()
	defer m.forget(id)
	if !terminal {
		r := m.finish(t, id, "")
		return r.out, r.errs, r.exit.GetStatus()
	}
	in := m.bind(t, id, "", api.Stream_STREAM_STDIN)
	defer in.Close()
	r := m.output(t, id, "", api.Stream_STREAM_STDOUT)
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	status, out = m.exit(t, id, "").GetStatus(), <-r
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id}); err != nil {
		t.Error(err)
	}
	return strings.ReplaceAll(out, "\r\n", "\n"), "", status
}
