// Package upgrade tests upgrades below running containers: kata-runtime itself
// installs one version after the other on a private host (package host), under
// the distribution's containerd.
package upgrade
