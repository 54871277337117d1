package config

import (
	"reflect"
	"time"
)

// state is what setting a key does.
type state string

const (
	// effective keys do what they say.
	effective state = "effective"
	// planned keys are known but have no effect yet.
	planned state = "planned"
	// refused keys request what a sandbox here cannot do or does not need.
	refused state = "refused"
)

// key is one key of configuration.toml.
type key struct {
	// name is the full dotted name.
	name string
	// state says which of the fields below count.
	state state
	// def is the default as TOML would decode it. An effective key's default is
	// passed to set like any other value. For other keys it is Kata's default,
	// which is what happens here too.
	def any
	// zeroIsUnset makes "" and 0 mean the default, as they do for Kata.
	zeroIsUnset bool
	// want ends the sentence "want ..." in error texts.
	want string
	// doc explains the key to an operator: sentences, without line breaks.
	// For a refused key it is the reason, as a phrase that can follow a colon.
	doc string
	// unsafe refused keys are an error, not a warning: ignoring them would give
	// less protection than the operator requested.
	unsafe bool
	// annotations are those by which a pod can set the key.
	annotations []annotation
	// set puts a decoded TOML value into a draft; false means that the value is
	// not allowed. get returns the draft's value. Only effective keys have
	// them.
	set func(*draft, any) bool
	get func(*draft) any
}

// draft is a Config under construction: some values have a meaning only
// together with others and the host (resolve.go).
type draft struct {
	Config
	// vcpus is default_vcpus as written; negative means all host CPUs.
	vcpus float64
	// maxVCPUs is default_maxvcpus as written; 0 means all host CPUs.
	maxVCPUs uint32
	// guestEmptyDir has the same effect as EmptyDirBlock.
	guestEmptyDir bool
}

// define declares a key that sets a field of the draft.
func define[T any](name string, def any, k kind[T], field func(*draft) *T, doc string) key {
	return key{
		name: name, state: effective, def: def, want: k.want, doc: doc,
		set: func(d *draft, v any) bool {
			value, ok := k.parse(v)
			if ok {
				*field(d) = value
			}
			return ok
		},
		get: func(d *draft) any { return plain(*field(d)) },
	}
}

// later declares a key that has no effect yet.
func later[T any](name string, def any, k kind[T], doc string) key {
	return key{name: name, state: planned, def: def, want: k.want, doc: doc}
}

// never declares a key that is refused, and why.
func never[T any](name string, def any, k kind[T], why string) key {
	return key{name: name, state: refused, def: def, want: k.want, doc: why}
}

// orDefault makes "" and 0 mean the default.
func (k key) orDefault() key {
	k.zeroIsUnset = true
	return k
}

// negated makes the field the opposite of the key, which is a boolean.
func (k key) negated() key {
	set, get := k.set, k.get
	k.set = func(d *draft, v any) bool {
		b, ok := v.(bool)
		return ok && set(d, !b)
	}
	k.get = func(d *draft) any {
		field, _ := get(d).(bool)
		return !field
	}
	return k
}

// orFail makes a refused key an error.
func (k key) orFail() key {
	k.unsafe = true
	return k
}

// isUnset reports whether v leaves the key at its default. Both zeros of a
// number count: 0 and 0.0.
func (k key) isUnset(v any) bool {
	switch v.(type) {
	case string, int64, float64:
		return k.zeroIsUnset && reflect.ValueOf(v).IsZero()
	}
	return false
}

// isDefault reports whether v, the value of a key without effect, requests what
// happens anyway.
func (k key) isDefault(v any) bool {
	return v == "" || reflect.DeepEqual(v, k.def)
}

// plain gives a value the type that TOML has for it.
func plain(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return int64(v / time.Second)
	case []string:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = item
		}
		return list
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.String:
		return r.String()
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return int64(r.Uint())
	}
	return v
}
