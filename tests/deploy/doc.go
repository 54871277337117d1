// Package deploy tests deploy/ as a cluster gets it: the installer's image, run
// by a real containerd, and the manifests.
package deploy
