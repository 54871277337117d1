// Package printable makes text that a guest may have written safe to show: it
// stays in its line, and cannot control a terminal.
package printable
