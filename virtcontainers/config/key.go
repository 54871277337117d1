package config

import "reflect"

// key is one key of configuration.toml that has an effect.
type key struct {
	// name is the full dotted name.
	name string
	// def is the default as TOML would decode it; it goes through set like
	// any other value.
	def any
	// zeroIsUnset makes "" and 0 mean the default, as they do for Kata.
	zeroIsUnset bool
	// want ends the sentence "want ..." in error texts.
	want string
	// doc explains the key to an operator: sentences, without line breaks.
	doc string
	// set puts a decoded TOML value into a draft; false means that the value
	// is not allowed.
	set func(*draft, any) bool
}

// draft is a Config in the making: some values mean something only together
// with others and with the host (resolve.go).
type draft struct {
	Config
	// vcpus is default_vcpus as written; negative means all host CPUs.
	vcpus float64
	// maxVCPUs is default_maxvcpus as written; 0 means all host CPUs.
	maxVCPUs uint32
}

// define declares a key whose value goes to a field of the draft.
func define[T any](name string, def any, k kind[T], field func(*draft) *T, doc string) key {
	return key{
		name: name, def: def, want: k.want, doc: doc,
		set: func(d *draft, v any) bool {
			value, ok := k.parse(v)
			if ok {
				*field(d) = value
			}
			return ok
		},
	}
}

// orDefault makes "" and 0 mean the default.
func (k key) orDefault() key {
	k.zeroIsUnset = true
	return k
}

// isUnset tells whether v leaves the key at its default. Both zeros of a
// number count: 0 and 0.0.
func (k key) isUnset(v any) bool {
	switch v.(type) {
	case string, int64, float64:
		return k.zeroIsUnset && reflect.ValueOf(v).IsZero()
	}
	return false
}
