// Package printable makes a guest's text safe to show: it stays in its line, and
// cannot control a terminal.
package printable
