package usernet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
)

// slirp4netns' fixed addresses (slirp4netns(1)).
const (
	slirpResolver = "10.0.2.3"
	slirpGuest    = "10.0.2.100"
)

// maxAnswer bounds an answer of slirp4netns' API.
const maxAnswer = 64 << 10

// startSlirp starts slirp4netns, whose network is IPv4 only.
func startSlirp(ctx context.Context, n *Net, cfg Config) error {
	n.Resolver = slirpResolver
	log, socket := filepath.Join(cfg.Dir, "slirp4netns.log"), filepath.Join(cfg.Dir, "slirp4netns.sock")
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		close(n.done)
		return err
	}
	defer ready.Close()
	// Descriptors 3 and 4 of the program.
	err = n.launch(Slirp, []string{
		"--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp",
		"--api-socket=" + socket, "--ready-fd=3", "--netns-type=path", "/proc/self/fd/4", "eth0",
	}, []*os.File{readyEnd, n.ns}, log, func() error { return nil })
	if err := errors.Join(err, readyEnd.Close()); err != nil {
		return err
	}
	if err := awaitReady(ctx, ready); err != nil {
		select {
		case <-n.done:
			return n.ended(log)
		case <-time.After(endTimeout):
			return err
		}
	}
	for _, p := range cfg.Ports {
		if err := slirpForward(ctx, socket, p); err != nil {
			return fmt.Errorf("publish port %s: %w", p, err)
		}
	}
	return nil
}

// awaitReady reads the byte that slirp4netns writes when it is ready.
func awaitReady(ctx context.Context, ready *os.File) error {
	deadline, _ := ctx.Deadline()
	if err := ready.SetReadDeadline(deadline); err != nil {
		return err
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait until it is ready: %w", err)
	}
	return nil
}

// slirpForward requests the forwarding of one port.
func slirpForward(ctx context.Context, socket string, p Port) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	address := "0.0.0.0"
	if p.Address.IsValid() {
		address = p.Address.String()
	}
	request := map[string]any{"execute": "add_hostfwd", "arguments": map[string]any{
		"proto": p.Protocol, "host_addr": address, "host_port": p.Host, "guest_addr": slirpGuest, "guest_port": p.Guest,
	}}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return err
	}
	return slirpAnswer(conn)
}

// slirpAnswer reads one answer.
func slirpAnswer(conn net.Conn) error {
	var answer struct {
		Error *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %w", answer.Error.Desc, errdefs.ErrUnavailable)
	}
	return nil
}
