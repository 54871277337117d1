package config

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

const (
	// annotationPrefix begins the names of Kata's annotations.
	annotationPrefix = "io.katacontainers."
	// hypervisorPrefix begins the names of those that the operator has to
	// enable.
	hypervisorPrefix = annotationPrefix + "config.hypervisor."
	// forkPrefix begins the names of openEuler's Kata for iSulad, and those
	// of Kata Containers up to 1.8.
	forkPrefix = "com.github.containers.virtcontainers."
	// oldPrefix is the prefix in Kata Containers 1.9, in place of
	// annotationPrefix.
	oldPrefix = "io.kata-containers."
)

// annotation is a way for a pod to set a key.
type annotation struct {
	// name is the full name.
	name string
	// want ends the sentence "want ..." when it differs from the key's.
	want string
	// decode turns the text into what TOML would have decoded; the key's own
	// checks then apply to the result.
	decode func(string) (any, bool)
	// adds appends the value to the configuration's instead of replacing it.
	adds bool
	// allowed returns the patterns of which a path must match one; allowedBy is
	// the key that holds them. nil allows all paths.
	allowed   func(*Config) []string
	allowedBy string
	// check refuses decoded values that are allowed in the file but not to a
	// pod; nil refuses none. Its error is a phrase that follows a colon.
	check func(any) error
}

// annotated lets pods set the key by io.katacontainers.NAME, with the values
// that the file takes.
func (k key) annotated(name string) key {
	k.annotations = append(k.annotations, annotation{name: annotationPrefix + name, decode: decoderLike(k.def)})
	return k
}

// forked lets pods set the key by openEuler's name too.
func (k key) forked(name, want string, decode func(string) (any, bool)) key {
	k.annotations = append(k.annotations, annotation{name: forkPrefix + name, want: want, decode: decode})
	return k
}

// adds makes the latest annotation append.
func (k key) adds() key {
	k.annotations[len(k.annotations)-1].adds = true
	return k
}

// decoded replaces the decoder of the latest annotation.
func (k key) decoded(want string, decode func(string) (any, bool)) key {
	a := &k.annotations[len(k.annotations)-1]
	a.want, a.decode = want, decode
	return k
}

// within limits the latest annotation to the paths that another key allows.
func (k key) within(name string, allowed func(*Config) []string) key {
	a := &k.annotations[len(k.annotations)-1]
	a.allowedBy, a.allowed = name, allowed
	return k
}

// checked has the latest annotation's values checked: those that become part of a
// command line, or that only the file may choose.
func (k key) checked(check func(any) error) key {
	k.annotations[len(k.annotations)-1].check = check
	return k
}

// judge checks a value that could be decoded.
func (a annotation) judge(v any, decoded bool) error {
	if a.check == nil || !decoded {
		return nil
	}
	return a.check(v)
}

// decoderLike returns the decoder for an annotation's text that fits the type
// of the key's default.
func decoderLike(def any) func(string) (any, bool) {
	switch def.(type) {
	case bool:
		return decodeBool
	case int64, float64:
		return decodeNumber
	}
	return func(s string) (any, bool) { return s, true }
}

// decodeBool takes what Kata's decoder takes: strconv.ParseBool's words (1, t,
// true, 0, f, false and so on).
func decodeBool(s string) (any, bool) {
	v, err := strconv.ParseBool(s)
	return v, err == nil
}

func decodeNumber(s string) (any, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// maxCreateTimeout is the longest create_container_timeout that a pod may ask for, in
// seconds: a day.
const maxCreateTimeout = 24 * 60 * 60

func decodeCreateTimeout(s string) (any, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= maxCreateTimeout
}

// decodeJSONList takes a JSON list of strings.
func decodeJSONList(s string) (any, bool) {
	var list []string
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		return nil, false
	}
	return plain(list), true
}

// decodeModules takes modules with their parameters, separated by semicolons.
func decodeModules(s string) (any, bool) {
	var list []any
	for module := range strings.SplitSeq(s, ";") {
		if module = strings.TrimSpace(module); module != "" {
			list = append(list, module)
		}
	}
	return list, len(list) > 0
}

// minSandboxCPU is openEuler's minimum for sandbox_cpu.
const minSandboxCPU = 0.5

// decodeSandboxCPU takes a number of vCPUs that may be a fraction.
func decodeSandboxCPU(s string) (any, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f >= minSandboxCPU && !math.IsInf(f, 0)
}

// sizeUnits is the bytes of each unit of a size.
var sizeUnits = map[byte]uint64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40}

// decodeSandboxMemory takes bytes, or a number with one of sizeUnits, and
// returns MiB, rounded up.
func decodeSandboxMemory(s string) (any, bool) {
	unit := uint64(1)
	if s != "" {
		if u, ok := sizeUnits[s[len(s)-1]|0x20]; ok { // | 0x20: in lower case
			s, unit = s[:len(s)-1], u
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > math.MaxInt64/unit {
		return nil, false
	}
	bytes := n * unit
	mib := bytes >> 20
	if bytes&(1<<20-1) != 0 {
		mib++
	}
	return int64(mib), true
}
