package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Result is how a command ended.
type Result struct {
	Code        int
	Out, Errors string
}

// Kubectl runs one of its commands as an administrator, with that input.
func (n *Node) Kubectl(ctx context.Context, input string, args ...string) Result {
	cmd := n.KubectlCmd(ctx, args...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	return Run(cmd)
}

// KubectlCmd returns kubectl with args, ready to run.
func (n *Node) KubectlCmd(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.tool("kubectl"), append([]string{"--kubeconfig", kubeconfigPath, "--cache-dir", Dir + "/kubectl"}, args...)...)
	cmd.Env = environment
	return cmd
}

// Ctr runs a command of containerd's client in the namespace of CRI's pods.
func Ctr(ctx context.Context, args ...string) Result {
	cmd := exec.CommandContext(ctx, filepath.Join(programsDir, "ctr"), append([]string{"--namespace", "k8s.io"}, args...)...)
	cmd.Env = environment
	return Run(cmd)
}

// Run runs a command and returns how it ended; code -1 if it did not start or was
// killed.
func Run(cmd *exec.Cmd) Result {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	r := Result{Out: out.String(), Errors: errs.String()}
	if err != nil {
		r.Code = -1
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			r.Code = exit.ExitCode()
		}
		r.Errors += err.Error()
	}
	return r
}

// answers returns a probe: the URL answers with a success.
func answers(url string) func(context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the services' certificates are their own
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
}
