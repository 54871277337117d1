package manager

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/descriptors"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// Start answers an engine's start with the address of a new daemon, or, for a
// pod's service container, of the sandbox's shim. On an error nothing is left.
func Start(p *Params, stdin io.Reader, stdout io.Writer) error {
	if err := p.ReadStdin(stdin); err != nil {
		return err
	}
	address, err := start(p)
	if err != nil {
		return err
	}
	var mounts *types.MountCapabilities
	if p.Dialect == DialectProto {
		mounts = mountCapabilities(p)
	}
	return writeAnswer(stdout, p.Dialect, answerVersion(p), address, mounts)
}

func start(p *Params) (string, error) {
	b, err := bundle.Load(p.Bundle)
	if errdefs.IsNotFound(err) {
		return startDaemon(p) // pods of the sandbox API have no container with the sandbox's id
	}
	if err != nil {
		return "", err
	}
	place, err := bundle.Place(p.ID, b.Spec.Annotations)
	if err != nil {
		return "", err
	}
	if place.Kind == bundle.Service {
		return joinSandbox(p, place.SandboxID)
	}
	return startDaemon(p)
}

// joinSandbox finds the address of the pod's shim through the sandbox's bundle,
// and makes that shim this container's too.
func joinSandbox(p *Params, sandboxID string) (string, error) {
	dir, err := sandboxBundle(p, sandboxID)
	if err != nil {
		return "", fmt.Errorf("container %s: %w", p.ID, err)
	}
	address, err := bundle.Address(dir)
	if err != nil {
		return "", fmt.Errorf("find sandbox %s of container %s: %w", sandboxID, p.ID, err)
	}
	if err := checkServed(address); err != nil {
		return "", fmt.Errorf("the shim of sandbox %s of container %s does not run any more: %w", sandboxID, p.ID, err)
	}
	if err := writeFile(p.Bundle, bundle.AddressFile, address); err != nil {
		return "", fmt.Errorf("write address: %w", err)
	}
	return address, nil
}

func startDaemon(p *Params) (_ string, err error) {
	address := socketAddress(p)
	l, err := listen(address)
	if err != nil {
		return "", err
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		return "", errors.Join(fmt.Errorf("pass socket on: %w", err), removeSocket(address))
	}
	defer socket.Close()
	_ = os.Remove(filepath.Join(p.Bundle, bundle.EndingFile)) // left by an earlier daemon: iSulad keeps bundles
	// Descriptors that the engine left open here would stay open as long as the
	// daemon runs: Podman's conmon passes on the sockets that reserve a
	// container's ports, and a restarted container would find the ports in use.
	if err := descriptors.KeepFromChildren(socketFD); err != nil {
		return "", errors.Join(fmt.Errorf("start daemon: keep the engine's files from it: %w", err), removeSocket(address))
	}
	cmd, err := daemonCommand(p, socket)
	if err != nil {
		return "", errors.Join(fmt.Errorf("start daemon: %w", err), removeSocket(address))
	}
	var enter func() error
	if p.schedCore {
		enter = newCoreDomain
	} else if startSpare(p, cmd, address) { // a spare's processes are in no domain of this pod
		return address, nil
	}
	if err := startInDomain(cmd, enter); err != nil {
		return "", errors.Join(fmt.Errorf("start daemon: %w", err), removeSocket(address))
	}
	if err := announce(p, cmd.Process.Pid, address); err != nil {
		return "", errors.Join(err, cmd.Process.Kill(), removeSocket(address))
	}
	return address, cmd.Process.Release()
}

// announce writes into the bundle which process serves it, and makes that
// process as likely to be killed for memory as a shim is.
func announce(p *Params, pid int, address string) error {
	err := errors.Join(
		writeFile(p.Bundle, bundle.PIDFile, strconv.Itoa(pid)),
		writeFile(p.Bundle, bundle.AddressFile, address),
	)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	adjustOOMScore(pid)
	return nil
}

// daemonCommand runs this program again, in a new session, with the listening
// socket as its first extra file and no other descriptor of the caller: engines
// read stdout and stderr until they are closed.
func daemonCommand(p *Params, socket *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, p.flagsForDaemon...)
	cmd.Dir = p.Bundle
	cmd.Env = append(os.Environ(), "TTRPC_ADDRESS="+p.EventAddress, configEnv+"="+p.configPath,
		launchedEnv+"="+strconv.FormatInt(p.launched.UnixNano(), 10))
	if os.Getenv("GOMAXPROCS") == "" {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=2")
	}
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// adjustOOMScore makes the daemon a little more likely to be killed than its
// engine, as containerd's shims do. It may fail: it needs CAP_SYS_RESOURCE if the
// engine's score is below zero.
func adjustOOMScore(pid int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", os.Getppid()))
	if err != nil {
		return
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return
	}
	score = min(score+1, 1000)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}
