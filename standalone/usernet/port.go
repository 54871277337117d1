package usernet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// Port is a port of the host that is forwarded to one of the container.
type Port struct {
	// Address is the host's address; the zero value means all of them.
	Address netip.Addr `json:"address"`
	// Protocol is "tcp" or "udp".
	Protocol string `json:"protocol"`
	Host     uint16 `json:"host"`
	Guest    uint16 `json:"guest"`
}

// String returns the form that ParsePort parses.
func (p Port) String() string {
	text := fmt.Sprintf("%d:%d/%s", p.Host, p.Guest, p.Protocol)
	if p.Address.IsValid() {
		return p.Address.String() + ":" + text
	}
	return text
}

// checkPorts refuses a port of the host that is not available: the programs
// report that each in a different way, or not at all.
func checkPorts(ctx context.Context, ports []Port) error {
	for _, p := range ports {
		if err := p.try(ctx); err != nil {
			return fmt.Errorf("publish port %s: %w", p, err)
		}
	}
	return nil
}

// try binds the port briefly.
func (p Port) try(ctx context.Context) error {
	address := netip.AddrPortFrom(netip.IPv4Unspecified(), p.Host)
	if p.Address.IsValid() {
		address = netip.AddrPortFrom(p.Address, p.Host)
	}
	var (
		config net.ListenConfig
		taken  io.Closer
		err    error
	)
	if p.Protocol == "udp" {
		taken, err = config.ListenPacket(ctx, "udp4", address.String())
	} else {
		taken, err = config.Listen(ctx, "tcp4", address.String())
	}
	if err != nil {
		return err
	}
	return taken.Close()
}

// ParsePort parses [IPV4:]HOST:CONTAINER[/tcp|/udp].
func ParsePort(text string) (Port, error) {
	bad := fmt.Errorf("port %q: want [IPV4:]HOST:CONTAINER[/tcp|/udp]: %w", text, errdefs.ErrInvalidArgument)
	numbers, protocol, given := strings.Cut(text, "/")
	if !given {
		protocol = "tcp"
	}
	parts := strings.Split(numbers, ":")
	if len(parts) < 2 || len(parts) > 3 || protocol != "tcp" && protocol != "udp" {
		return Port{}, bad
	}
	p := Port{Protocol: protocol}
	if len(parts) == 3 {
		addr, err := netip.ParseAddr(parts[0])
		if err != nil || !addr.Is4() {
			return Port{}, bad
		}
		p.Address, parts = addr, parts[1:]
	}
	for i, to := range []*uint16{&p.Host, &p.Guest} {
		n, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil || n == 0 {
			return Port{}, bad
		}
		*to = uint16(n)
	}
	return p, nil
}
