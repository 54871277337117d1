package command

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// sizePattern matches a number of bytes as runc's update takes it.
var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kmgtp])?i?b?$`)

// parseBytes reads a number of bytes, with a unit of 1024 or without: 67108864, 64M,
// 1.5GiB. -1 is no limit.
func parseBytes(text string) (int64, error) {
	if text == "-1" {
		return -1, nil
	}
	bad := fmt.Errorf("%q: want a number of bytes, also with k, m, g, t or p, or -1: %w", text, errdefs.ErrInvalidArgument)
	parts := sizePattern.FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return 0, bad
	}
	if parts[2] == "" {
		if n, err := strconv.ParseInt(parts[1], 10, 64); err == nil { // all its digits count
			return n, nil
		}
	}
	n, err := strconv.ParseFloat(parts[1], 64)
	if parts[2] != "" {
		n = math.Ldexp(n, 10*(1+strings.Index("kmgtp", parts[2])))
	}
	if err != nil || n >= math.MaxInt64 {
		return 0, bad
	}
	return int64(n), nil
}
