package usernet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/netns"
)

func TestPort(t *testing.T) {
	for _, text := range []string{"8080:80/tcp", "127.0.0.1:8080:80/udp"} {
		if p, err := ParsePort(text); err != nil || p.String() != text {
			t.Errorf("port %s: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "80", "0:80", "80:0", "80:65536", "x:80:80", "::1:80:80", "80:80/sctp", "1.2.3.4:5"} {
		if p, err := ParsePort(text); err == nil {
			t.Errorf("port %q: %v", text, p)
		}
	}
}

// each runs a test with each installed program.
func each(t *testing.T, f func(t *testing.T, program string)) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range []string{Pasta, Slirp} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip(err)
			}
			f(t, program)
		})
	}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// A server in the namespace is reached by the published port, and connections
// from the namespace reach the host's network.
func TestNetwork(t *testing.T) {
	each(t, func(t *testing.T, program string) {
		port := Port{Address: netip.MustParseAddr("127.0.0.1"), Protocol: "tcp", Host: freePort(t), Guest: 8080}
		n, err := Start(context.Background(), Config{Program: program, Dir: t.TempDir(), Ports: []Port{port}})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		ns, err := netns.Open(n.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		var server net.Listener
		err = netns.Do(ns, func() error {
			routes, err := os.ReadFile("/proc/thread-self/net/route")
			if err == nil && !strings.Contains(string(routes), "eth0\t00000000") {
				t.Errorf("no default route:\n%s", routes)
			}
			if err != nil {
				return err
			}
			server, err = net.Listen("tcp4", "0.0.0.0:8080")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		go func() {
			for {
				conn, err := server.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "hello\n")
				_ = conn.Close()
			}
		}()
		if got := ask(t, fmt.Sprintf("127.0.0.1:%d", port.Host)); got != "hello\n" {
			t.Errorf("got %q", got)
		}
	})
}

func ask(t *testing.T, address string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return line
}

// After Close nothing is left, and the death of a program is noticed.
func TestEnd(t *testing.T) {
	each(t, func(t *testing.T, program string) {
		dir := t.TempDir()
		n, err := Start(context.Background(), Config{Program: program, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if left := running(t, dir); left == 0 {
			t.Errorf("no process has %s in its arguments: this test would see nothing", dir)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-n.Done():
		default:
			t.Error("closed, but not done")
		}
		if left := running(t, dir); left != 0 {
			t.Errorf("%d processes are left", left)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil || strings.Contains(string(mounts), dir) {
			t.Errorf("mounts: %v\n%s", err, mounts)
		}
	})
}

// With AppArmor, pasta may write below /tmp alone, and read nothing there.
func TestPastaWritesBelowTmp(t *testing.T) {
	each(t, func(t *testing.T, program string) {
		if program != Pasta {
			t.Skip("it has no such profile")
		}
		t.Setenv("TMPDIR", "/var/tmp") // the caller's directory is not in /tmp
		base := t.TempDir()
		n, err := Start(context.Background(), Config{Program: program, Dir: base})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		files := 0
		for _, word := range arguments(t, base) {
			if strings.Contains(word, base) {
				files++
				if !strings.HasPrefix(word, "/tmp/") {
					t.Errorf("pasta writes %s", word)
				}
			}
		}
		if files != 2 { // pid and namespace
			t.Errorf("%d of pasta's arguments name the directory", files)
		}
	})
}

// arguments returns those of the process that has a word in them.
func arguments(t *testing.T, word string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), word) {
			return strings.Split(string(data), "\x00")
		}
	}
	return nil
}

// running counts the processes with a word in their arguments.
func running(t *testing.T, word string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), word) {
			count++
		}
	}
	return count
}

// A port in use is an error, and not a container without it.
func TestPortIsTaken(t *testing.T) {
	each(t, func(t *testing.T, program string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken := netip.MustParseAddrPort(l.Addr().String())
		dir := t.TempDir()
		n, err := Start(context.Background(), Config{Program: program, Dir: dir,
			Ports: []Port{{Address: taken.Addr(), Protocol: "tcp", Host: taken.Port(), Guest: 80}}})
		if err == nil {
			t.Errorf("started on a port that is taken")
			_ = n.Close()
		}
		t.Log(err)
		if left := running(t, dir); left != 0 {
			t.Errorf("%d processes are left", left)
		}
	})
}

func TestNoProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(context.Background(), Config{Dir: t.TempDir()}); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if _, err := Start(context.Background(), Config{Program: "bridge"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("got %v", err)
	}
}

// A program that is installed and does not work leaves the network to the other,
// unless it is the one that was asked for.
func TestTheFirstThatWorks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("TMPDIR", "/var/tmp") // pasta's /tmp is another
	dir := t.TempDir()
	broken := []byte("#!/bin/sh\necho it does not work here >&2\nexit 1\n")
	if err := os.WriteFile(filepath.Join(dir, Pasta), broken, 0o755); err != nil {
		t.Fatal(err)
	}
	slirp, err := exec.LookPath(Slirp)
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	if err == nil {
		n, err := Start(context.Background(), Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatalf("with %s: %v", slirp, err)
		}
		if n.Program != Slirp {
			t.Errorf("the network is of %s", n.Program)
		}
		_ = n.Close()
	}
	_, err = Start(context.Background(), Config{Program: Pasta, Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "it does not work here") {
		t.Errorf("asked for pasta: %v", err)
	}
	t.Setenv("PATH", dir)
	_, err = Start(context.Background(), Config{Dir: t.TempDir()})
	if err == nil || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "it does not work here") {
		t.Errorf("without the other: %v", err)
	}
}
