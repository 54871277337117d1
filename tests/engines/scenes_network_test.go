package engines

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Networks: published ports, names, shared namespaces.
func networkScenes() []scene {
	return []scene{
		{name: "ports", play: playPorts},
		{name: "networks", play: playNetworks},
		{name: "first moment", play: playFirstMoment},
		{name: "namespaces", play: playNamespaces},
		{name: "names", play: playNames},
		{name: "compose", needs: Compose, play: playCompose},
	}
}

const webServer = "mkdir /www; echo served >/www/index.html; echo ready; httpd -f -p 80 -h /www"

func playPorts(ctx context.Context, s *stage) {
	port, err := freePort()
	if err != nil {
		s.t.Fatal(err)
	}
	name := s.container("web")
	if !s.start(ctx, name, webServer, "-p", "127.0.0.1:"+port+":80", "-p", "127.0.0.2:"+port+":80") {
		return
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
		s.expect("get "+address, s.eventually(ctx, "served\n", func() string {
			return get(ctx, "http://"+net.JoinHostPort(address, port))
		}), "served\n")
	}
	r := s.run(ctx, "port", name, "80/tcp")
	s.expect("port", strings.Contains(r.stdout, ":"+port), "true")
	s.expect("after a restart: restart", s.run(ctx, "restart", "-t", "0", name).code, "0")
	s.expect("after a restart: get", s.eventually(ctx, "served\n", func() string {
		return get(ctx, "http://"+net.JoinHostPort("127.0.0.1", port))
	}), "served\n")
	s.run(ctx, "rm", "-f", name)
	s.expect("after the end", get(ctx, "http://"+net.JoinHostPort("127.0.0.1", port)) == "served\n", "false")
}

// freePort finds an unused TCP port of the private host.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// get returns a URL's content, or the error.
func get(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func playNetworks(ctx context.Context, s *stage) {
	network := s.thing("network", "net")
	// The runtimes' networks exist one after the other; the subnet is the same.
	s.expect("create", s.run(ctx, "network", "create", "--subnet", "10.99.7.0/24", network).code, "0")
	web, alias := s.container("web"), s.container("client")
	if !s.start(ctx, web, webServer, "--network", network, "--ip", "10.99.7.20", "--cap-add", "NET_RAW") {
		return
	}
	s.expect("ready", s.logged(ctx, web, "ready"), "true")
	s.expect("address", s.run(ctx, "exec", web, "sh", "-c", "ip -4 -o addr show dev eth0 | awk '{print $4}'"), `exit 0 "10.99.7.20/24\n"`)
	s.expect("by address", s.script(ctx, "wget -q -O - http://10.99.7.20", "--network", network), `exit 0 "served\n"`)
	asks := func(host string) string { return "/ask http://" + host }
	withAsk := []string{"--network", network, "-v", bed.ask + ":/ask:ro"}
	s.expect("by name", s.script(ctx, asks(web), append(withAsk, "--name", alias)...), `exit 0 "served\n"`)
	s.expect("no such name", s.script(ctx, asks("no-such-host"), withAsk...).code, "1")
	s.expect("name from outside", s.askOutside(ctx, network), `exit 0 "served\n"`)
	s.note("from another network", s.script(ctx, "nc -w 3 10.99.7.20 80 </dev/null || exit 9").code) // Podman lets it pass
	s.expect("from the host", get(ctx, "http://10.99.7.20"), "served\n")
	s.expect("gateway", s.run(ctx, "exec", web, "ping", "-c", "1", "-W", "5", "10.99.7.1").code, "0")
}

// A process finds its network as it starts: engines make it before.
func playFirstMoment(ctx context.Context, s *stage) {
	network := s.thing("network", "net")
	s.expect("create", s.run(ctx, "network", "create", "--subnet", "10.99.6.0/24", network).code, "0")
	const look = `ip -4 -o addr show dev eth0 | awk '{print $4}'; ip route | awk '$1 == "default" {print $3}'; exec true`
	for range 3 {
		r := s.script(ctx, look, "--network", network, "--ip", "10.99.6.20")
		if want := "10.99.6.20/24\n10.99.6.1\n"; r.stdout != want {
			s.complaints = append(s.complaints, fmt.Sprintf("%s: with %s a process finds %q, want %q", s.scene, s.runtime.Name, r.stdout, want))
		}
	}
}

func playNamespaces(ctx context.Context, s *stage) {
	r := s.script(ctx, "ls /sys/class/net | grep -cv -e lo -e bonding_masters; ip addr show lo | grep -c 127.0.0.1", "--network", "none")
	s.expect("none", r.line(0), "0")
	s.expect("none: lo", r.line(1), "1")
	s.note("host", s.script(ctx, "ip addr show lo | grep -c 127.0.0.1", "--network", "host"))
	s.note("links with IPv6", s.script(ctx, "awk '{print $6, $4}' /proc/net/if_inet6 | sort"))
	web := s.container("web")
	if !s.start(ctx, web, webServer) {
		return
	}
	s.expect("ready", s.logged(ctx, web, "ready"), "true")
	const connect = "nc -w 5 127.0.0.1 80 </dev/null"
	s.note("of a container", s.script(ctx, connect, "--network", "container:"+web).code)
	s.expect("the first is as before", s.run(ctx, "exec", web, "sh", "-c", connect).code, "0")
	s.note("processes of a container", s.script(ctx, "ps | grep -c '[h]ttpd'", "--pid", "container:"+web))
	s.note("host's processes", s.script(ctx, "test $(ls -d /proc/[0-9]* | wc -l) -gt 5", "--pid", "host").code)
	s.note("host's name", s.script(ctx, "hostname", "--uts", "host").code)
	s.note("host's IPC", s.script(ctx, "true", "--ipc", "host").code)
	s.expect("private IPC", s.script(ctx, "test -d /dev/shm", "--ipc", "private").code, "0")
}

func playNames(ctx context.Context, s *stage) {
	r := s.script(ctx, "grep -w 192.0.2.7 /etc/hosts | awk '{print $2}'; grep -c '^nameserver 192.0.2.53' /etc/resolv.conf; "+
		"grep -c -w boxed /etc/hosts; cat /sys/class/net/eth0/address",
		"--add-host", "there:192.0.2.7", "--dns", "192.0.2.53", "--hostname", "boxed", "--mac-address", "02:00:5e:10:00:07")
	s.expect("added host", r.line(0), "there")
	s.expect("resolver", r.line(1), "1")
	s.expect("own name", r.line(2), "1")
	s.expect("own MAC", r.line(3), "02:00:5e:10:00:07")
}

const composeFile = `services:
  web:
    image: katabox.test/busybox:latest
    runtime: %s
    stop_grace_period: 1s
    command: ["sh", "-c", "mkdir /www; echo composed >/www/index.html; httpd -f -p 80 -h /www"]
  client:
    image: katabox.test/busybox:latest
    runtime: %s
    stop_grace_period: 1s
    depends_on: [web]
    volumes: ["%s:/ask:ro"]
    command: ["sh", "-c", "/ask -for 80s http://web; sleep 1000"]
`

func playCompose(ctx context.Context, s *stage) {
	dir := s.t.TempDir()
	file := s.file(dir, "compose.yaml", fmt.Sprintf(composeFile, s.runtime.Type, s.runtime.Type, bed.ask))
	compose := func(args ...string) result {
		return s.run(ctx, append([]string{"compose", "-f", file, "-p", "composed" + s.runtime.Name}, args...)...)
	}
	s.expect("up", compose("up", "-d").code, "0")
	s.expect("client by name", s.eventually(ctx, "true", func() string {
		r := compose("logs", "client")
		return fmt.Sprint(strings.Contains(r.stdout+r.stderr, "composed"))
	}), "true")
	s.expect("ps", strings.Count(compose("ps").stdout, "composed"+s.runtime.Name) >= 2, "true")
	s.note("exec", compose("exec", "web", "echo", "hi").code)
	s.expect("down", compose("down").code, "0")
}
