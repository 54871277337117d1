// Package command implements kata-runtime's commands for containers without an
// engine: run, exec, logs, ps, stop, rm. It parses flags, prints for people, and
// connects terminal and signals to a command; containers themselves are
// implemented in standalone/container.
package command
