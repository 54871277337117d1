package oci

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ParseSignal reads a signal's number, or its name with or without SIG; ""
// is SIGTERM.
func ParseSignal(s string) (uint32, error) {
	if s == "" {
		return uint32(unix.SIGTERM), nil
	}
	if number, err := strconv.Atoi(s); err == nil {
		if number < 0 || number > 64 { // signal(7): the last real-time signal
			return 0, fmt.Errorf("signal %q: want a number from 0 to 64, or a name: %w", s, errdefs.ErrInvalidArgument)
		}
		return uint32(number), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	number := unix.SignalNum(name)
	if number == 0 {
		return 0, fmt.Errorf("unknown signal %q: %w", s, errdefs.ErrInvalidArgument)
	}
	return uint32(number), nil
}
