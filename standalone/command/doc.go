// Package command is what kata-runtime does with containers without an engine:
// run, exec, logs, ps, stop, rm. It reads flags, writes for people, and joins
// terminal and signals with a command's; what a container is lives in
// standalone/container.
package command
