package config

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// kind is a type of value: how it comes out of TOML and which values are
// allowed.
type kind[T any] struct {
	// want ends the sentence "want ..." in error texts.
	want string
	// parse takes a decoded TOML value: string, int64, float64, bool, []any,
	// map[string]any, or a time. It returns false when the value is not
	// allowed.
	parse func(any) (T, bool)
}

var boolean = kind[bool]{"true or false", as[bool]}

// text is any string without control characters: a NUL would cut an argument
// short, a newline would forge a second line in a log.
var text = kind[string]{"a string without control characters", func(v any) (string, bool) {
	s, ok := v.(string)
	return s, ok && printable(s)
}}

var absolutePath = kind[string]{"an absolute path", func(v any) (string, bool) {
	s, ok := text.parse(v)
	return s, ok && filepath.IsAbs(s)
}}

// maybeAbsolute is an absolute path, or empty.
var maybeAbsolute = kind[string]{"an absolute path, or an empty string", func(v any) (string, bool) {
	if v == "" {
		return "", true
	}
	return absolutePath.parse(v)
}}

// commaList is a comma separated list. Blanks and empty items, which QEMU
// refuses, are removed.
var commaList = kind[string]{"a comma separated list", func(v any) (string, bool) {
	s, ok := text.parse(v)
	items := strings.Split(s, ",")
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
	}
	items = slices.DeleteFunc(items, func(item string) bool { return item == "" })
	return strings.Join(items, ","), ok
}}

var q35Version = regexp.MustCompile(`^pc-q35-[0-9]+\.[0-9]+$`)

var machineType = kind[string]{`"q35", or a versioned "pc-q35-X.Y"; no other board is supported`,
	func(v any) (string, bool) {
		s, ok := v.(string)
		return s, ok && (s == "q35" || q35Version.MatchString(s))
	}}

var cpuCount = kind[float64]{"a number of vCPUs (a fraction is rounded up), or a negative one for all host CPUs",
	func(v any) (float64, bool) {
		if n, ok := v.(int64); ok {
			return float64(n), true
		}
		f, ok := v.(float64)
		return f, ok && !math.IsNaN(f) && !math.IsInf(f, 0)
	}}

// queueSize starts at the smallest size with which a guest can mount the share:
// its driver needs more than the four descriptors that each request takes
// (fs/fuse/virtio_fs.c, FUSE_HEADER_OVERHEAD).
var queueSize = kind[uint16]{"a power of two from 8 to 1024", func(v any) (uint16, bool) {
	n, ok := v.(int64)
	ok = ok && n >= minQueueSize && n <= maxQueueSize && n&(n-1) == 0
	if !ok {
		return 0, false
	}
	return uint16(n), true
}}

// translationBuffer is 0 for QEMU's own size, or at least the smallest useful
// size.
var translationBuffer = kind[uint64]{"an integer number of MiB from 16 to 2048, or 0 for QEMU's own", func(v any) (uint64, bool) {
	n, ok := v.(int64)
	ok = ok && (n == 0 || n >= minTranslationMiB && n <= maxTranslationMiB)
	if !ok {
		return 0, false
	}
	return uint64(n), true
}}

// seconds stops at what 32 bits hold, as Kata's do; a time.Duration holds
// more.
var seconds = kind[time.Duration]{"an integer number of seconds, 0 for the default", func(v any) (time.Duration, bool) {
	n, ok := v.(int64)
	return time.Duration(n) * time.Second, ok && n > 0 && n <= math.MaxUint32
}}

// interval is like seconds, but 0 is a value: never.
var interval = kind[time.Duration]{"an integer number of seconds, 0 for never", func(v any) (time.Duration, bool) {
	n, ok := v.(int64)
	return time.Duration(n) * time.Second, ok && n >= 0 && n <= math.MaxUint32
}}

// MinBitRate and MaxBitRate are the bounds of a rate limit, in bits per second: what the
// token buckets of package network can do.
const (
	MinBitRate = 8192
	MaxBitRate = 1e15
)

var bitRate = kind[uint64]{"a number of bits per second from 8192 to 1000000000000000, or 0 for no limit", func(v any) (uint64, bool) {
	n, ok := v.(int64)
	return uint64(n), ok && (n == 0 || n >= MinBitRate && n <= MaxBitRate)
}}

// sectorSize is what Linux and QEMU take as the sector size of a disk: Linux
// refuses more than a page for the logical one, QEMU more than 2 MiB for any
// (hw/core/qdev-properties.c, size_to_str and check of a block size). Kata's
// maximum is 64 KiB.
var sectorSize = kind[uint32]{"a power of two from 512 to 65536, or 0 for the disk's own", func(v any) (uint32, bool) {
	n, ok := v.(int64)
	ok = ok && n >= 0 && n <= maxSectorSize && n&(n-1) == 0 && (n == 0 || n >= minSectorSize)
	if !ok {
		return 0, false
	}
	return uint32(n), true
}}

// cleanPath is an absolute path without "..", "." or "//".
var cleanPath = kind[string]{"an absolute path without .. or similar", func(v any) (string, bool) {
	s, ok := absolutePath.parse(v)
	return s, ok && s == filepath.Clean(s)
}}

// guestPath is such a path in the guest, or empty.
var guestPath = kind[string]{"an absolute path without .. or similar, or an empty string", func(v any) (string, bool) {
	if v == "" {
		return "", true
	}
	return cleanPath.parse(v)
}}

// maybePath is a cleanPath, or empty.
var maybePath = kind[string]{"an absolute path without .. or similar, or nothing", func(v any) (string, bool) {
	if v == "" {
		return "", true
	}
	return cleanPath.parse(v)
}}

// bindMounts is a list of paths, each with a mode or without.
var bindMounts = listOf(`a list of "path", "path:ro" or "path:rw", each path absolute and not /`, func(s string) bool {
	path, writable := strings.CutSuffix(s, ":rw")
	if !writable {
		path = strings.TrimSuffix(s, ":ro")
	}
	_, ok := cleanPath.parse(path)
	return ok && path != "/" && !strings.HasSuffix(path, ":ro") && !strings.HasSuffix(path, ":rw") // one mode
})

// diskPaths are paths of device nodes, which may be patterns.
var diskPaths = listOf("a list of paths below /dev, which may be glob patterns", func(s string) bool {
	_, err := filepath.Match(s, "")
	_, clean := cleanPath.parse(s)
	return err == nil && clean && strings.HasPrefix(s, "/dev/")
})

// count, words and portKind are for keys without effect: their values are
// described but not used.
var (
	count    = integer[uint64]("an integer, at least 0", 0, math.MaxInt64)
	words    = listOf("a list of strings", func(string) bool { return true })
	portKind = oneOf("", "no-port", "bridge-port", "root-port", "switch-port")
)

// patterns is a list of glob patterns as in filepath.Match; an empty one
// matches nothing but an empty path.
var patterns = listOf("a list of glob patterns", func(s string) bool {
	_, err := filepath.Match(s, "")
	return err == nil
})

// expressions is a list of regular expressions as package regexp has them.
var expressions = listOf("a list of regular expressions", func(s string) bool {
	_, err := regexp.Compile(s)
	return err == nil
})

var arguments = listOf("a list of arguments, none empty", func(s string) bool { return s != "" })

var moduleName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

var modules = listOf(`a list of "module parameter=value ..." strings`, func(s string) bool {
	fields := strings.Fields(s)
	return len(fields) > 0 && moduleName.MatchString(fields[0])
})

// integer allows the integers from low to high.
func integer[T uint32 | uint64](want string, low, high int64) kind[T] {
	return kind[T]{want, func(v any) (T, bool) {
		n, ok := v.(int64)
		if !ok || n < low || n > high {
			return 0, false
		}
		return T(n), true
	}}
}

// oneOf allows some words; want replaces their list in error texts when it is
// not empty.
func oneOf[T ~string](want string, words ...T) kind[T] {
	if want == "" {
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = `"` + string(w) + `"`
		}
		want = "one of " + strings.Join(quoted, ", ")
	}
	return kind[T]{want, func(v any) (T, bool) {
		s, ok := v.(string)
		return T(s), ok && slices.Contains(words, T(s))
	}}
}

// listOf allows lists of printable strings for which allowed holds.
func listOf(want string, allowed func(string) bool) kind[[]string] {
	return kind[[]string]{want, func(v any) ([]string, bool) {
		items, ok := v.([]any)
		if !ok {
			return nil, false
		}
		var list []string
		for _, item := range items {
			s, ok := text.parse(item)
			if !ok || !allowed(s) {
				return nil, false
			}
			list = append(list, s)
		}
		return list, true
	}}
}

func as[T any](v any) (T, bool) {
	t, ok := v.(T)
	return t, ok
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, unicode.IsControl)
}
