package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holdFiles keeps files open and reports on request what their descriptors
// show: a line with path, size, number of links and text for each. A request is
// a write to the first FIFO; the answer goes to the second. It prints "ready"
// first, and runs until it is killed.
func holdFiles(args []string, out io.Writer) error {
	if len(args) < 3 {
		return errors.New("want two FIFOs, and the files to hold")
	}
	ask, answer := args[0], args[1]
	var held []*os.File
	defer func() {
		for _, f := range held {
			_ = f.Close() // only read
		}
	}()
	for _, path := range args[2:] {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		held = append(held, f)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	for {
		if _, err := os.ReadFile(ask); err != nil {
			return err
		}
		var report strings.Builder
		for _, f := range held {
			fmt.Fprintf(&report, "%s %s\n", f.Name(), seen(f))
		}
		if err := os.WriteFile(answer, []byte(report.String()), 0o600); err != nil {
			return err
		}
	}
}

// seen returns a held file's size, links and text, or an error instead.
func seen(f *os.File) string {
	const most = 64 << 10
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Sprintf("fstat: %v", err)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	if err != nil {
		return fmt.Sprintf("%d %d read: %v", st.Size, st.Nlink, errors.Unwrap(err))
	}
	return fmt.Sprintf("%d %d %q", st.Size, st.Nlink, text)
}
