package podnet

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/internal/intime"
)

func TestParseResolvConf(t *testing.T) {
	got := parseResolvConf([]byte("# a comment\n; and one\nnameserver 10.0.0.10\n nameserver\tfd00::10 # trailing\nnameserver\n" +
		"domain old.example\nsearch a.svc b.svc\noptions ndots:5 edns0\nsortlist 10.0.0.0\noptions timeout:1\n"))
	want := &api.DNS{
		Servers: []string{"10.0.0.10", "fd00::10"}, Searches: []string{"a.svc", "b.svc"},
		Options: []string{"ndots:5", "edns0", "timeout:1"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// The guest refuses its whole network for a word that it cannot use. With runc a
// container starts with any file.
func TestParseResolvConfOfAUser(t *testing.T) {
	long := strings.Repeat("x", 256)
	got := parseResolvConf([]byte("nameserver 1.1.1.1#53\nnameserver [::1]:53\nnameserver fe80::1%eth0\nnameserver dns.example\n" +
		"search a." + long + " b.svc \xe9.svc c\x01.svc\noptions ndots:2 " + long + "\n" + strings.Repeat("nameserver 10.0.0.1\noptions x\n", 100)))
	if len(got.Servers) != api.MaxDNSEntries || got.Servers[0] != "fe80::1%eth0" || got.Servers[1] != "10.0.0.1" {
		t.Errorf("servers: %q", got.Servers)
	}
	if diff := cmp.Diff([]string{"b.svc"}, got.Searches); diff != "" {
		t.Error(diff)
	}
	if len(got.Options) != api.MaxDNSEntries || got.Options[0] != "ndots:2" || got.Options[1] != "x" {
		t.Errorf("options: %q", got.Options)
	}
}

func TestReadDNSOfNothing(t *testing.T) {
	if dns, err := readDNS(t.Context(), ""); dns != nil || err != nil {
		t.Errorf("no file: %v, %v", dns, err)
	}
	if _, err := readDNS(t.Context(), t.TempDir()+"/gone"); err == nil {
		t.Error("a file that is gone was read")
	}
	fifo := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, t.TempDir()} {
		if _, err := readDNS(t.Context(), path); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A resolv.conf on a file system that hangs is given up with the call.
func TestReadDNSThatHangs(t *testing.T) {
	hung, release := hungfs.Mount(t)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	path := filepath.Join(hung, "resolv.conf")
	read := make(chan error, 1)
	go func() {
		_, err := readDNS(ctx, path)
		read <- err
	}()
	select {
	case err := <-read:
		if !errors.Is(err, intime.ErrUnanswered) || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the call is not given up")
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 1.1.1.1\nsearch x\noptions y"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dns := parseResolvConf(data)
		for _, list := range [][]string{dns.Servers, dns.Searches, dns.Options} {
			if len(list) > api.MaxDNSEntries {
				t.Errorf("%d entries", len(list))
			}
			for _, word := range list {
				if word == "" || len(word) > 255 || strings.ContainsFunc(word, unicode.IsControl) {
					t.Errorf("the word %q", word)
				}
			}
		}
	})
}
