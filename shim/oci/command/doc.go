// Package command is the command line of package oci: the commands, flags,
// messages and exit codes that engines know from runc.
package command
