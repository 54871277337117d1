package config

import (
	"cmp"
	"fmt"
)

// Origin is where a value comes from. The zero value is the built-in default.
type Origin struct {
	// File is the configuration file or drop-in, Line counts from 1.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Annotation is the full name, as the pod has it.
	Annotation string `json:"annotation,omitempty"`
}

// String is "FILE:LINE", "annotation NAME" or "default".
func (o Origin) String() string {
	switch {
	case o.Annotation != "":
		return "annotation " + o.Annotation
	case o.File != "":
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return "default"
}

// Value is one key that has an effect, with its value.
type Value struct {
	// Key is the full dotted name.
	Key string
	// Value is a string, bool, int64, float64 or []any of strings. Durations
	// are in seconds, as in the file.
	Value any
	// Origin is where the value comes from.
	Origin Origin
}

// Values returns every key that has an effect, in the order of
// configuration.toml. The values are those in use: default_vcpus and
// default_maxvcpus are what this host can provide.
func (c *Config) Values() []Value {
	d := c.draft()
	values := make([]Value, len(keys))
	for i, k := range keys {
		values[i] = Value{k.name, k.get(&d), c.Origins[k.name]}
	}
	return values
}

// draft makes a draft out of a Config.
func (c *Config) draft() draft {
	return draft{
		Config:        *c,
		vcpus:         cmp.Or(c.Hypervisor.DefaultVCPUs, float64(c.Hypervisor.VCPUs)),
		maxVCPUs:      c.Hypervisor.MaxVCPUs,
		guestEmptyDir: c.Runtime.EmptyDirMode == EmptyDirBlock,
	}
}
