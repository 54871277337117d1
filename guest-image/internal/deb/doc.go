// Package deb downloads a Debian kernel package and reads it: apt provides the
// file's name and SHA-256, apt-get downloads it, dpkg-deb converts it to a tar
// stream.
//
// Nothing is installed and nothing of a package is ever written to a path
// that the package names. What the files in a package mean is not known here.
package deb
