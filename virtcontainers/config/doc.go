// Package config turns configuration.toml and its drop-ins into one validated
// Config. The keys have Kata Containers' names.
//
// Each key is declared once, in a table (keys.go): name, default, permitted
// values, explanation, and the annotations by which a pod can set it.
// Decoding, validation, error texts, the shipped configuration.toml and
// docs/configuration.md all come from that table; keys that users may set but
// that have no effect here are in other tables (planned.go, refused.go), as are
// annotations that belong to no key (foreign.go). This package neither checks
// that the files that a Config names exist nor uses them.
//
//	files ---parse-----> settings, with file and line
//	      ---merge-----> the last setting of each key
//	      ---build-----> Config and warnings, or all errors at once
//	      ---Annotate--> the Config of one pod, the same way
package config
