// Package upgrade installs one version after the other below containers that run,
// with kata-runtime itself on a private host (package host), under the containerd
// of the distribution.
package upgrade
