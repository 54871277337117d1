package podnet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// maxResolvConf bounds a resolv.conf, in bytes: the resolver itself uses six
// search domains of 256 bytes and three servers (resolv.conf(5)).
const maxResolvConf = 64 << 10

// readDNS reads a resolv.conf. It returns nil for an empty path.
func readDNS(path string) (*api.DNS, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // must not block on a FIFO
	if err != nil {
		return nil, fmt.Errorf("read the pod's DNS settings: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read the pod's DNS settings: %s is not a regular file: %w", path, errors.Join(err, errdefs.ErrInvalidArgument))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxResolvConf))
	if err != nil {
		return nil, fmt.Errorf("read the pod's DNS settings: %w", err)
	}
	return parseResolvConf(data), nil
}

// parseResolvConf uses the lines that resolv.conf(5) describes and ignores the
// others, as the resolver does. The last search line counts.
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
			dns.Servers = append(dns.Servers, fields[1])
		case "search", "domain":
			dns.Searches = fields[1:]
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns
}
