package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Proc is one process of the host, as it was when read.
type Proc struct {
	PID, PPID int
	// State is the letter of proc(5): 'Z' is a zombie.
	State byte
	// Comm is the kernel's name for it, 15 bytes at most.
	Comm string
	// Args is its command line, with spaces between the words.
	Args   string
	group  int // process group
	tagged bool
	// standIn is set for a process that declares itself a container's stand-in.
	standIn bool
	// ofMaker is set for a template maker, a spare and their QEMUs, which belong to no
	// pod.
	ofMaker bool
}

// String describes the process for a person.
func (p Proc) String() string {
	return fmt.Sprintf("process %d (%s, parent %d): %.160s", p.PID, p.Comm, p.PPID, p.Args)
}

// The kinds of host processes of a pod. A stand-in represents a container on
// the host. A maker and its QEMU are not part of a pod.
const (
	KindShim      = "shim"
	KindVMM       = "QEMU"
	KindVirtiofsd = "virtiofsd"
	KindStandIn   = "stand-in"
	KindMaker     = "maker of templates"
	KindOther     = "other"
)

// Kind returns the process's role in a pod.
func (p Proc) Kind() string {
	switch {
	case p.ofMaker:
		return KindMaker
	case p.standIn: // its name is the container's command's
		return KindStandIn
	case strings.HasPrefix(p.Comm, "containerd-shim"):
		return KindShim
	case strings.HasPrefix(p.Comm, "qemu-system"):
		return KindVMM
	case strings.HasPrefix(p.Comm, "virtiofsd"):
		return KindVirtiofsd
	}
	return KindOther
}

// tree returns all processes, and marks those with tag in their environment.
// Without a tag, only what is needed to reap is read. Processes that end while
// they are read are left out.
func tree(tag string) (map[int]Proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	procs := map[int]Proc{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProc(pid, tag); ok {
			procs[pid] = p
		}
	}
	return procs, nil
}

// Runs reports whether there is a process of that id that has not ended. One that has,
// and is not reaped yet, does not run.
func Runs(pid int) bool {
	p, ok := readProc(pid, "")
	return ok && p.State != 'Z'
}

// readProc reads one process from proc(5); ok is false if it is gone.
func readProc(pid int, tag string) (Proc, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Proc{}, false
	}
	// pid (comm) state ppid pgrp ...: comm may hold spaces and parentheses.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if open < 0 || end < open || len(fields) < 3 {
		return Proc{}, false
	}
	p := Proc{PID: pid, State: fields[0][0], Comm: string(stat[open+1 : end])}
	if p.PPID, err = strconv.Atoi(fields[1]); err != nil {
		return Proc{}, false
	}
	if p.group, err = strconv.Atoi(fields[2]); err != nil {
		return Proc{}, false
	}
	if tag == "" {
		return p, true
	}
	args, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // empty for a zombie
	environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
	p.Args = strings.TrimSpace(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
	p.tagged = bytes.Contains(environ, []byte(tag))
	p.standIn = bytes.Contains(environ, []byte("KATABOX_CONTAINER="))
	return p, true
}

// owned returns the processes that have tag or descend from one that has it,
// and the orphans that this process adopted; not root itself, and not zombies
// of this process, which hold nothing.
func owned(tag string, root int) ([]Proc, error) {
	procs, err := tree(tag)
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	var found []Proc
	for _, p := range procs {
		if p.PID == root || p.PID == self || (p.State == 'Z' && p.PPID == self) {
			continue
		}
		p.ofMaker = p.inBackground() || procs[p.PPID].inBackground()
		orphan := p.PPID == self && p.Kind() != KindOther && !p.ofMaker // those of another daemon have this parent too
		if descends(procs, p) || orphan {
			found = append(found, p)
		}
	}
	return found, nil
}

// background are the names that the processes of no pod give themselves: the
// template maker and the keeper of its memory (shim/maker), and a spare that no pod has
// claimed (shim/spare).
var background = map[string]bool{"kata-template": true, "kata-keeper": true, "kata-spare": true}

// inBackground reports whether it is one of those, or will give itself that name: until then
// its command line says so.
func (p Proc) inBackground() bool {
	words := strings.Fields(p.Args)
	return background[p.Comm] || p.Comm == "exe" && len(words) > 1 && slices.Contains([]string{"make-template", "keep-template", "spare"}, words[1])
}

func descends(procs map[int]Proc, p Proc) bool {
	for range 64 { // no chain of ours is deeper; the table may hold a cycle
		if p.tagged {
			return true
		}
		parent, ok := procs[p.PPID]
		if !ok {
			return false
		}
		p = parent
	}
	return false
}

// PID returns the daemon's process ID.
func (d *Daemon) PID() int { return d.child.PID() }

// KillOne sends SIGKILL to the daemon's only process of a kind.
func (d *Daemon) KillOne(kind string) error {
	p, err := d.One(kind)
	if err != nil {
		return err
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %v: %w", p, err)
	}
	return nil
}

// One returns the daemon's only process of a kind.
func (d *Daemon) One(kind string) (Proc, error) {
	procs, err := d.Processes()
	if err != nil {
		return Proc{}, err
	}
	var found []Proc
	for _, p := range procs {
		if p.Kind() == kind {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return Proc{}, fmt.Errorf("%d processes are a %s, want 1: %v", len(found), kind, found)
	}
	return found[0], nil
}
