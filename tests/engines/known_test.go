package engines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// known is the list of differences. What is only not implemented yet must not
// be in it.
var known = []difference{
	{
		engines: []string{"podman", "podman-5.4"}, row: "top: the container's processes", runc: "true", kata: "false",
		why: "Podman reads the host's /proc from the container's PID namespace, and the processes are the guest's; " +
			"`podman exec NAME ps` shows them",
	},
	{
		engines: []string{"podman", "podman-5.4"}, row: "namespaces: of a container", runc: "0", kata: "126",
		why: "a network belongs to one machine, and outside a pod the other container has its own machine; Katabox refuses with an error that says so",
	},
	{
		engines: []string{"podman", "podman-5.4"}, row: "namespaces: processes of a container", runc: `exit 0 "1\n"`, kata: `exit 126 ""`,
		why: "as above: X's processes are in another machine. Within a Podman pod `--pid=container:X` works",
	},
	{
		engines: []string{"podman", "podman-5.4"}, row: "namespaces: host's processes", runc: "0", kata: "126",
		why: "a guest cannot see the host's processes; Katabox refuses with an error that says so",
	},
	{
		engines: []string{"podman", "podman-5.4"}, row: "namespaces: host's IPC", runc: "0", kata: "126",
		why: "as above, for System V IPC",
	},
	{
		engines: []string{"docker-28", "docker-26.1", "docker-20.10"}, row: "namespaces: of a container", runc: "0", kata: "125",
		why: "a network belongs to one machine, and the other container has its own; Katabox refuses with an error that says so",
	},
	{
		engines: []string{"docker-28", "docker-26.1", "docker-20.10"}, row: "namespaces: processes of a container", runc: `exit 0 "1\n"`, kata: `exit 125 ""`,
		why: "as above: the other container's processes are in another machine",
	},
	{
		engines: []string{"docker-28", "docker-26.1", "docker-20.10"}, row: "namespaces: host's processes", runc: "0", kata: "125",
		why: "a guest cannot see the host's processes; Katabox refuses with an error that says so",
	},
	{
		engines: []string{"docker-28", "docker-26.1", "docker-20.10"}, row: "namespaces: host's IPC", runc: "0", kata: "125",
		why: "as above, for System V IPC",
	},
	{
		engines: []string{"nerdctl"}, row: "namespaces: of a container", runc: "0", kata: "1",
		why: "a network belongs to one machine, and the other container has its own; Katabox refuses with an error that says so",
	},
	{
		engines: []string{"nerdctl"}, row: "namespaces: processes of a container", runc: `exit 0 "1\n"`, kata: `exit 1 ""`,
		why: "as above: the other container's processes are in another machine",
	},
	{
		engines: []string{"nerdctl"}, row: "namespaces: host's processes", runc: "0", kata: "1",
		why: "a guest cannot see the host's processes; Katabox refuses with an error that says so",
	},
	{
		engines: []string{"nerdctl"}, row: "namespaces: host's IPC", runc: "0", kata: "1",
		why: "as above, for System V IPC",
	},
	{
		engines: []string{"docker-28", "docker-26.1"}, row: "below: read only", runc: "9", kata: "0",
		why: "Docker makes mounts below a read-only volume read-only, too, with a runtime whose features it knows, and it does not ask a shim for them; see below",
	},
	{
		row: "cpus: set", runc: `exit 0 "1\n"`, kata: `exit 0 "2\n"`,
		why: "the machine gets one vCPU for each CPU of the set in addition to `default_vcpus`; all of them run on that set",
	},
	{
		engines: []string{"docker-20.10"}, row: "stats: memory limit", runc: "64MiB", kata: "*GiB",
		why: "this Docker reads the limit of the host's cgroup, which holds the whole VM; the container's limit is enforced in the guest",
	},
	{
		engines: []string{"podman-5.4"}, row: "stats: memory limit", runc: "67.11MB", kata: "*GB",
		why: "as above; Podman 4.3 shows the limit that was asked for",
	},
	{
		engines: []string{"docker-20.10"}, row: "memory: too much: said", runc: "true", kata: "false",
		why: "this Docker watches the host's cgroup, but the guest's kernel killed the process; the exit code is 137 with both",
	},
}

// quirk is a row in which an engine with runc does not do what a scene expects:
// with Katabox it must do the same, or what kata says.
type quirk struct {
	engine, row, runc string // patterns
	why               string
	kata              string // a pattern; empty for the same as with runc
}

var quirks = []quirk{
	{"nerdctl", "exec: exit 42", "1", "nerdctl exec says the code in words and exits with 1", ""},
	{"nerdctl", "exec: killed", "1", "as above", ""},
	{"nerdctl", "exec: terminated", "1", "as above", ""},
	{"nerdctl", "exec: terminal: exit", "1", "as above", ""},
	{"nerdctl", "process: domain", `exit 0 "(none)\n"`, "a runc before 1.2 leaves the domain name out", `exit 0 "example.org\n"`},
	{"podman*", "attach: attach", "0", "podman attach says nothing of the container's exit code", ""},
	{"podman*", "ulimits: files", `exit 126 ""`, "Podman raises the limits that are not named, which the host's root may not " +
		"where it lacks CAP_SYS_RESOURCE, and the guest's may", `exit 0 "100\n200\n"`},
	{"podman*", "ulimits: core", `exit 126 ""`, "as above", `exit 0 "0\n"`},
	{"podman-5*", "networks: from another network", "0", "netavark keeps networks apart only with --opt isolate", ""},
}

func (q quirk) is(engine, row, runc string) bool {
	return matches(q.engine, engine) && matches(q.row, row) && matches(q.runc, runc)
}

func isQuirk(engine, row, runc string) bool {
	return slices.ContainsFunc(quirks, func(q quirk) bool { return q.is(engine, row, runc) })
}

// mendsQuirk reports whether Katabox does what is expected where the engine
// with runc has a quirk.
func mendsQuirk(engine, row, runc, kata string) bool {
	return slices.ContainsFunc(quirks, func(q quirk) bool {
		return q.is(engine, row, runc) && q.kata != "" && matches(q.kata, kata)
	})
}

// docs/compat.md has the same list, between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	if err := bed.layout.CheckCompatPage("engines", knownTable()); err != nil {
		t.Error(err)
	}
}

// knownTable returns the list in the page's format.
func knownTable() string {
	var b strings.Builder
	b.WriteString("| row | engines | runc | Katabox | why |\n| --- | --- | --- | --- | --- |\n")
	for _, k := range known {
		engines := strings.Join(k.engines, ", ")
		if engines == "" {
			engines = "all"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.row, engines, k.runc, k.kata, k.why)
	}
	return b.String()
}
