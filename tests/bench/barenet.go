package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/tests/harness"
)

//go:embed init/net.c
var netInitSource string

// bareWire is the network between the server's namespace and the bare machine.
const bareWire = "10.76.3"

// bareNetwork is the pod's QEMU with a card like the pod's, on a TAP device in
// the server's namespace: no veth, no traffic control, no shim. Its init runs
// iperf3.
type bareNetwork struct {
	cmd     *exec.Cmd
	stop    context.CancelFunc
	console *bufio.Scanner
	input   io.WriteCloser
	stderr  harness.Buffer
}

// startBareNetwork boots the machine; the caller ends it. tools is what staged
// has returned.
func startBareNetwork(ctx context.Context, d *harness.Daemon, server harness.Netns, podArgs []string, tools string) (*bareNetwork, error) {
	const tap = "bare0"
	script := fmt.Sprintf("ip tuntap add dev %[1]s mode tap vnet_hdr\nip addr add %[2]s.1/24 dev %[1]s\nip link set %[1]s up", tap, bareWire)
	if _, err := server.Run("sh", "-ec", script); err != nil {
		return nil, err
	}
	initrd := filepath.Join(d.Dir, "barenet.cpio")
	if err := writeNetInitrd(ctx, d, tools, initrd); err != nil {
		return nil, err
	}
	m := keptMachine(podArgs)
	if i := slices.Index(m.args, "-append"); i >= 0 {
		m.args[i+1] += " rdinit=" + netInit
	}
	m.args = append(m.args, "-initrd", initrd, "-serial", "stdio",
		"-netdev", "tap,id=net,script=no,downscript=no,vhost=off,ifname="+tap,
		"-device", "virtio-net-pci,netdev=net,mac=02:00:00:00:00:01,disable-legacy=on,romfile=")
	ctx, cancel := context.WithCancel(ctx)
	b := &bareNetwork{stop: cancel, cmd: server.Command(ctx, append([]string{m.path}, m.args...)...)}
	b.cmd.Stderr = &b.stderr
	if err := b.start(); err != nil {
		cancel()
		return nil, err
	}
	if _, err := b.until("INIT"); err != nil {
		b.close()
		return nil, fmt.Errorf("boot the bare machine: %w", err)
	}
	return b, nil
}

func (b *bareNetwork) start() error {
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("open console: %w", err)
	}
	if b.input, err = b.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("open console: %w", err)
	}
	b.console = bufio.NewScanner(out)
	if err := b.cmd.Start(); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	return nil
}

// until returns the console's lines before the one that begins with a word.
func (b *bareNetwork) until(word string) (string, error) {
	var lines strings.Builder
	for b.console.Scan() {
		line := strings.TrimRight(b.console.Text(), "\r")
		if strings.HasPrefix(line, word) {
			return lines.String(), nil
		}
		lines.WriteString(line + "\n")
	}
	return "", fmt.Errorf("the bare machine ended: %s%s", &b.stderr, lines.String())
}

// iperf runs the client in the machine, and returns its report.
func (b *bareNetwork) iperf(more ...string) (string, error) {
	line := strings.Join(append(iperfClient("", bareWire)[1:], more...), " ")
	if _, err := fmt.Fprintln(b.input, line); err != nil {
		return "", fmt.Errorf("ask the bare machine: %w", err)
	}
	return b.until("END")
}

// close ends the machine.
func (b *bareNetwork) close() {
	b.stop()
	_ = b.cmd.Wait() // it was killed
}

// netInit is the path of the init in its initrd.
const netInit = "/bench-init"

// writeNetInitrd writes an initrd of two archives: the init with iperf3, and the
// guest's image, for its modules.
func writeNetInitrd(ctx context.Context, d *harness.Daemon, tools, path string) error {
	program := filepath.Join(d.Dir, "barenet-init")
	source := fmt.Sprintf("#define ADDRESS %q\n#define LOADER %q\n%s", bareWire+".2", "/tools/"+loader, netInitSource)
	if err := harness.CompileC(ctx, source, program); err != nil {
		return err
	}
	image, err := os.ReadFile(d.Layout().Initrd())
	if err != nil {
		return fmt.Errorf("read the guest's initrd: %w", err)
	}
	records, err := toolRecords(tools, program)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := cpio.Newc.Writer(&archive)
	if err := errors.Join(cpio.WriteRecords(w, records), cpio.WriteTrailer(w)); err != nil {
		return fmt.Errorf("make initrd: %w", err)
	}
	// An archive begins at a multiple of four bytes (Documentation/driver-api/
	// early-userspace/buffer-format.rst).
	archive.Write(make([]byte, -archive.Len()&3))
	archive.Write(image)
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		return fmt.Errorf("make initrd: %w", err)
	}
	return nil
}

func toolRecords(tools, program string) ([]cpio.Record, error) {
	files, err := os.ReadDir(tools)
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	records := []cpio.Record{cpio.Directory("tools", 0o755)}
	from := map[string]string{strings.TrimPrefix(netInit, "/"): program}
	for _, f := range files {
		from["tools/"+f.Name()] = filepath.Join(tools, f.Name())
	}
	for name, file := range from {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read tool: %w", err)
		}
		records = append(records, cpio.StaticFile(name, string(data), 0o755))
	}
	return records, nil
}
