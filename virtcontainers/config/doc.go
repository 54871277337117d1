// Package config turns configuration.toml and its drop-ins into one validated
// Config. The keys are those that Kata Containers' users know.
//
// Each key is declared once, in a table (keys.go): name, default, what values
// it takes, and its explanation. Decoding, validation, error texts and the
// shipped configuration.toml all come from that table; a key that users may
// have but that does nothing yet is in another (planned.go). Whether the files
// that a Config names exist is not checked here, and neither is anything done
// with them.
//
//	files ---parse---> settings, with file and line
//	      ---merge---> the last setting of each key
//	      ---build---> Config and warnings, or all errors at once
package config
