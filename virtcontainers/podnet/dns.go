package podnet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
)

// maxResolvConf bounds a resolv.conf, in bytes: the resolver itself uses six
// search domains of 256 bytes and three servers (resolv.conf(5)).
const maxResolvConf = 64 << 10

// dnsWait bounds reading a resolv.conf, which may be on a file system that hangs:
// changes of the network, and the starts of containers, wait for it.
const dnsWait = 5 * time.Second

// readDNS reads a resolv.conf within ctx, and dnsWait at most. It returns nil for an
// empty path.
func readDNS(ctx context.Context, path string) (*api.DNS, error) {
	if path == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dnsWait, fmt.Errorf("it had %v", dnsWait))
	defer cancel()
	dns, err := intime.Call(ctx, func() (*api.DNS, error) { return readResolvConf(path) }, nil)
	if err != nil {
		return nil, fmt.Errorf("read the pod's DNS settings from %s: %w", path, err)
	}
	return dns, nil
}

func readResolvConf(path string) (*api.DNS, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // must not block on a FIFO
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file: %w", errors.Join(err, errdefs.ErrInvalidArgument))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxResolvConf))
	if err != nil {
		return nil, err
	}
	return parseResolvConf(data), nil
}

// maxWord is the length of the longest entry that the guest takes, in bytes
// (api.MaxDNSEntries).
const maxWord = 255

// parseResolvConf uses the lines that resolv.conf(5) describes and ignores the
// others, as the resolver does. The last search line counts. It also ignores what
// the guest would refuse: with runc only the container's resolver reads the file.
func parseResolvConf(data []byte) *api.DNS {
	dns := &api.DNS{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxResolvConf)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Servers = append(dns.Servers, entries(fields[1:2], isAddress)...)
		case "search", "domain":
			dns.Searches = entries(fields[1:], isWord)
		case "options":
			dns.Options = append(dns.Options, entries(fields[1:], isWord)...)
		}
	}
	for _, list := range []*[]string{&dns.Servers, &dns.Searches, &dns.Options} {
		*list = (*list)[:min(len(*list), api.MaxDNSEntries)]
	}
	return dns
}

// entries returns the words that are valid.
func entries(words []string, valid func(string) bool) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !valid(word) })
}

func isAddress(word string) bool {
	_, err := netip.ParseAddr(word)
	return err == nil && isWord(word)
}

func isWord(word string) bool {
	return len(word) <= maxWord && utf8.ValidString(word) && !strings.ContainsFunc(word, unicode.IsControl)
}
