package reverse

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/katabox/katabox/virtcontainers/netns"
)

// maxTable bounds what is read of a namespace's table of sockets, in bytes.
const maxTable = 4 << 20

// tcpListen is TCP_LISTEN of Linux's include/net/tcp_states.h.
const tcpListen = "0A"

// listens reports whether a socket in the namespace receives at addr, over UDP
// or TCP: one that is bound to addr, whatever its port (an engine may have
// rules that bring port 53 to it), or to every address and port 53. It reads
// the kernel's tables and sends nothing.
func listens(ns *os.File, addr netip.Addr) (found bool, err error) {
	err = netns.Do(ns, func() error {
		for table, state := range map[string]string{"udp": "", "tcp": tcpListen} {
			f, err := os.Open("/proc/thread-self/net/" + table)
			if err != nil {
				return fmt.Errorf("find a resolver: %w", err)
			}
			here, err := inTable(io.LimitReader(f, maxTable), addr, state)
			_ = f.Close()
			if err != nil {
				return fmt.Errorf("find a resolver: read %s: %w", f.Name(), err)
			}
			found = found || here
		}
		return nil
	})
	return found, err
}

// inTable searches a table in the format of /proc/net/udp (proc(5)): a heading,
// then a line for each socket, with its number, local address, remote address
// and state. An empty state matches any.
func inTable(table io.Reader, addr netip.Addr, state string) (bool, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || state != "" && fields[3] != state {
			continue
		}
		local, ok := parseLocal(fields[1])
		if ok && (local.Addr() == addr || local.Addr().IsUnspecified() && local.Port() == dnsPort) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// parseLocal reads an IPv4 address, as a number in the host's byte order, and a
// port, both hexadecimal.
func parseLocal(text string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || len(raw) != 4 {
		return netip.AddrPort{}, false
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var addr [4]byte
	binary.NativeEndian.PutUint32(addr[:], binary.BigEndian.Uint32(raw))
	return netip.AddrPortFrom(netip.AddrFrom4(addr), uint16(number)), true
}
