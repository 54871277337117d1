package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// EnvAccel names the accelerator that every pod must get, "kvm" or "tcg"; if it
// is unset, any will do. With "kvm" the pod's vsock must be the host kernel's
// too.
const EnvAccel = "KATABOX_TEST_ACCEL"

// bootedLine is in the shim's log, once for each pod.
const bootedLine = `msg="sandbox booted"`

// accelWords are what the line must contain, by EnvAccel's value.
var accelWords = map[string][]string{
	"":    nil,
	"kvm": {"accel=kvm", "vsock=vhost-vsock"},
	"tcg": {"accel=tcg"},
}

// checkAccel checks the pods that have booted since the last call: it is an
// error if one fell back to something else.
func (d *Daemon) checkAccel() error {
	wanted := os.Getenv(EnvAccel)
	words, known := accelWords[wanted]
	if !known {
		return fmt.Errorf("%s=%s: want kvm or tcg", EnvAccel, wanted)
	}
	if len(words) == 0 {
		return nil
	}
	f, err := os.Open(d.LogPath)
	if err != nil {
		return fmt.Errorf("check accelerators: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(d.accelChecked, io.SeekStart); err != nil {
		return fmt.Errorf("check accelerators: %w", err)
	}
	n, err := findOther(f, words)
	d.accelChecked += n
	return err
}

// findOther reads whole lines and returns how many bytes they had; those of
// booted pods must have all the words.
func findOther(r io.Reader, words []string) (read int64, err error) {
	lines := bufio.NewReader(r)
	var errs []error
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return read, errors.Join(errs...) // the rest of a line comes later
		}
		if err != nil {
			return read, fmt.Errorf("check accelerators: %w", err)
		}
		read += int64(len(line))
		fields := strings.Fields(line)
		lacks := func(word string) bool { return !slices.Contains(fields, word) }
		if strings.Contains(line, bootedLine) && slices.ContainsFunc(words, lacks) {
			errs = append(errs, fmt.Errorf("a pod has not %s: %s", strings.Join(words, " and "), strings.TrimSpace(line)))
		}
	}
}
