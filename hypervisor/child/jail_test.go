package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// jailUser is a user id that a test host does not use.
const jailUser = 1879048199

// shellJail returns a jail with what /bin/sh and similar programs need.
func shellJail(t *testing.T) *Jail {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changing the user needs root")
	}
	return &Jail{UID: jailUser, GID: jailUser, Show: []string{"/usr", "/bin", "/lib", "/lib64", "/nonexistent"}}
}

// jailed runs a script in a jail and returns its output.
func jailed(t *testing.T, jail *Jail, script string) string {
	t.Helper()
	var out bytes.Buffer
	shellPath, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Options{
		Path: shellPath, Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin", "A=b"}, Stdout: &out, Jail: jail,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, p)
	if p.Err() != nil {
		t.Errorf("%v: %s", p.Err(), p.Stderr())
	}
	return out.String()
}

func TestJailHoldsNothingElse(t *testing.T) {
	dir := t.TempDir()
	secret, open := filepath.Join(dir, "secret"), filepath.Join(dir, "open")
	for name, mode := range map[string]os.FileMode{secret: 0o600, open: 0o644} {
		if err := os.WriteFile(name, []byte("text of "+filepath.Base(name)), mode); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, jailUser, jailUser); err != nil {
		t.Fatal(err)
	}
	jail := shellJail(t)
	jail.Files = []Shown{{secret, "/boot/secret"}, {open, "/boot/open"}}
	jail.Dirs = []Shown{{own, "/own"}}
	jail.Devices = []string{"/dev/zero"}
	got := jailed(t, jail, `
		id -u; id -g; id -G
		echo / $(ls /); echo /dev $(ls -A /dev); echo /boot $(ls /boot)
		cat /boot/secret /boot/open; echo
		ls -l /boot/secret /dev/zero | cut -d' ' -f1
		head -c 1 /dev/zero | wc -c
		echo made >/own/file && cat /own/file
		for f in /x /boot/secret /usr/x /dev/x; do (echo >$f) 2>/dev/null && echo wrote $f; done
		env | grep -e ^A= -e KATABOX; echo end`)
	var want strings.Builder
	fmt.Fprintf(&want, "%[1]d\n%[1]d\n%[1]d\n", jailUser)
	fmt.Fprintf(&want, "/ %s\n/dev null urandom zero\n/boot open secret\n", strings.Join(shownNames(t, "bin", "boot", "dev", "lib", "lib64", "own", "usr"), " "))
	want.WriteString("text of secrettext of open\n-r--------\ncrw-------\n1\nmade\nA=b\nend\n")
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Error(diff)
	}
	if text, err := os.ReadFile(filepath.Join(own, "file")); err != nil || string(text) != "made\n" {
		t.Errorf("the host sees %q, %v", text, err)
	}
}

// shownNames drops what the host lacks.
func shownNames(t *testing.T, names ...string) []string {
	t.Helper()
	var there []string
	for _, name := range names {
		if _, err := os.Lstat("/" + name); err == nil || name == "own" || name == "boot" {
			there = append(there, name)
		}
	}
	return there
}

// rights returns the kernel's view of a process's rights.
func rights(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		all[name] = strings.Join(strings.Fields(value), " ")
	}
	return all
}

// A jailed process has none of root's rights, whatever its user. Because it has
// no /proc, the test inspects it from the host.
func TestJailHasNoRights(t *testing.T) {
	for _, uid := range []uint32{0, jailUser} {
		jail := shellJail(t)
		jail.UID, jail.GID = uid, uid
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		shellPath, err := filepath.EvalSymlinks("/bin/sh")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Start(Options{Path: shellPath, Args: []string{"-c", "echo >&3; exec sleep 1000"}, Env: []string{"PATH=/usr/bin"}, Jail: jail, ExtraFiles: []*os.File{w}})
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if n, err := r.Read(make([]byte, 1)); n != 1 {
			t.Fatalf("it does not run: %v; %s", err, p.Stderr())
		}
		got := rights(t, p.Pid())
		const none = "0000000000000000"
		for name, want := range map[string]string{
			"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1",
			"Uid": strings.TrimSpace(strings.Repeat(fmt.Sprintf("%d ", uid), 4)), "Gid": strings.TrimSpace(strings.Repeat(fmt.Sprintf("%d ", uid), 4)),
		} {
			if got[name] != want {
				t.Errorf("user %d: %s is %q, want %q", uid, name, got[name], want)
			}
		}
		if err := p.Kill(bounded(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestJailFails(t *testing.T) {
	for want, change := range map[string]func(*Jail){
		"show /nonexistent: stat /nonexistent":  func(j *Jail) { j.Files = []Shown{{"/nonexistent", "/f"}} },
		"show /nonexistent/d: open_tree":        func(j *Jail) { j.Dirs = []Shown{{"/nonexistent/d", "/d"}} },
		"stat /dev/nonexistent":                 func(j *Jail) { j.Devices = []string{"/dev/nonexistent"} },
		"/etc/passwd is not a character device": func(j *Jail) { j.Devices = []string{"/etc/passwd"} },
		"execute /usr/bin/env: no such file":    func(j *Jail) { j.Show = nil },
	} {
		jail := shellJail(t)
		change(jail)
		p, err := Start(Options{Path: "/usr/bin/env", Jail: jail})
		if err != nil {
			t.Fatal(err)
		}
		await(t, p)
		if p.ExitState().ExitCode() != 1 || !strings.Contains(p.Stderr().String(), want) {
			t.Errorf("want %q: %v, %s", want, p.ExitState(), p.Stderr())
		}
	}
	for _, jail := range []Jail{
		{Show: []string{"usr"}}, {Devices: []string{"/dev/../etc"}}, {Files: []Shown{{"/a", "b"}}}, {Dirs: []Shown{{"/a/", "/b"}}},
	} {
		if p, err := Start(Options{Path: "/usr/bin/env", Jail: &jail}); err == nil {
			_ = p.Kill(bounded(t))
			t.Errorf("%+v is taken", jail)
		}
	}
}

// With Descriptors a program can open what it inherited by name, and nothing
// else: not even where the descriptors' directory is on the host.
func TestJailDescriptors(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("inherited\n"), 0o604); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	jail := shellJail(t)
	jail.Descriptors = "/fd"
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := Start(Options{
		Path: shell, Args: []string{"-c", `exec 4</fd/3; read -r line <&4; echo "$line"; cat /fd/3; cd /fd/..; pwd -P
			for f in /fd/../status /fd/../fd/../../self /proc; do [ -e $f ] && echo $f; done; echo end`},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, ExtraFiles: []*os.File{f}, Jail: jail, Cloneflags: unix.CLONE_NEWPID,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, p)
	// cat is another process, which cannot look into the shell's directory.
	if got := out.String(); got != "inherited\n/\nend\n" {
		t.Errorf("got %q, %s", got, p.Stderr())
	}
}
