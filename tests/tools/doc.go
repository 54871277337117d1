// Package tools tests the scripts of this directory, against made-up states of
// the host.
package tools
