// Package deb downloads a Debian kernel package and reads it: apt provides the
// file's name and SHA-256, apt-get downloads it, dpkg-deb converts it to a tar
// stream.
//
// Nothing is installed, and nothing is written to a path from the package. This
// package does not interpret the files.
package deb
