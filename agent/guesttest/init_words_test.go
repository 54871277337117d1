package guesttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// aNumber in a spec stands for a number that no other start has: what belongs to
// the pod and outlives a container, such as a sysctl of its IPC namespace, must
// have been set by this start.
const aNumber = "NUMBER"

// lastNumber is the number of the latest start.
var lastNumber = 41000

// startWords replaces what differs from one start of a container to the next.
type startWords struct {
	id, number string
	// alive has the namespaces that the guest had before, such as "pid:[1]".
	alive map[string]bool
}

func newStartWords(t *testing.T, id string) startWords {
	t.Helper()
	lastNumber++
	w := startWords{id, fmt.Sprint(lastNumber), map[string]bool{}}
	for _, name := range namespaceName.FindAllString(fileIn(t, "/proc/self/mountinfo"), -1) {
		w.alive[name] = true // The pod's, which no process may be in.
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil {
			w.alive[name] = true
		}
	}
	return w
}

// fill encodes the spec of this start.
func (w startWords) fill(t *testing.T, spec *specs.Spec) []byte {
	t.Helper()
	spec.Process.Env = append(spec.Process.Env, "CONTAINER="+w.id)
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(text), aNumber, w.number))
}

var (
	namespaceName  = regexp.MustCompile(`\b(cgroup|ipc|mnt|net|pid|time|user|uts):\[\d+\]`)
	openName       = regexp.MustCompile(`\b(pipe|socket):\[\d+\]`)
	descriptorName = regexp.MustCompile(`, dstFd=/proc/thread-self/fd/\d+`) // libcontainer alone has it
	mountLine      = regexp.MustCompile(`^\d+ \d+ \d+:\d+ .* - `)
	sectionLine    = regexp.MustCompile(`^== `)
)

// replace returns text without the names and numbers of this start. The order
// of all that is numbered stays visible.
func (w startWords) replace(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, w.id, "ID"), w.number, aNumber)
	text = namespaceName.ReplaceAllStringFunc(text, func(name string) string {
		if w.alive[name] {
			return name
		}
		kind, _, _ := strings.Cut(name, ":")
		return kind + ":[new]"
	})
	numbers := numbering{}
	text = openName.ReplaceAllStringFunc(text, numbers.of)
	var lines []string
	mounts := numbering{}
	for line := range strings.Lines(text) {
		if sectionLine.MatchString(line) {
			mounts = numbering{}
		}
		if mountLine.MatchString(line) {
			line = mounts.mountinfo(line)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// numbering numbers names in the order of their appearance.
type numbering map[string]string

func (n numbering) of(name string) string {
	if _, ok := n[name]; !ok {
		n[name] = fmt.Sprint("#", len(n)+1)
	}
	return n[name]
}

// mountinfo replaces the numbers of a line of /proc/PID/mountinfo: those of
// mounts, peer groups and file systems without a device (proc_pid_mountinfo(5)).
func (n numbering) mountinfo(line string) string {
	fields := strings.Split(line, " ")
	fields[0], fields[1] = n.of("mount "+fields[0]), n.of("mount "+fields[1])
	if strings.HasPrefix(fields[2], "0:") {
		fields[2] = "0:" + n.of("device "+fields[2])
	}
	for i := 6; fields[i] != "-"; i++ {
		if kind, group, ok := strings.Cut(fields[i], ":"); ok {
			fields[i] = kind + ":" + n.of("peers "+group)
		}
	}
	return strings.Join(fields, " ")
}

// What is replaced must not hide what differs.
func TestStartWords(t *testing.T) {
	w := startWords{"own-x", "41001", map[string]bool{"net:[5]": true}}
	text := strings.Join([]string{
		"own-x has 41001", "net:[5] net:[6]", "pipe:[77] pipe:[78] pipe:[77]", "== mountinfo",
		"99 50 0:33 / / rw shared:7 - overlay overlay rw,lowerdir=/own-x", "100 99 0:34 / /proc ro - proc proc rw",
		"101 99 0:33 /a /b ro shared:8 master:7 - overlay overlay rw", "102 101 8:1 / /c rw - ext4 /dev/sda1 rw",
	}, "\n")
	want := strings.Join([]string{
		"ID has NUMBER", "net:[5] net:[new]", "#1 #2 #1", "== mountinfo",
		"#1 #2 0:#3 / / rw shared:#4 - overlay overlay rw,lowerdir=/ID", "#5 #1 0:#6 / /proc ro - proc proc rw",
		"#7 #1 0:#3 /a /b ro shared:#8 master:#4 - overlay overlay rw", "#9 #7 8:1 / /c rw - ext4 /dev/sda1 rw",
	}, "\n")
	if diff := cmp.Diff(want, w.replace(text)); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
}
