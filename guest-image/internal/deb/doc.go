// Package deb gets a Debian kernel package and reads it: apt names the file
// and its SHA-256, apt-get downloads it, dpkg-deb turns it into a tar stream.
//
// Nothing is installed and nothing of a package is ever written to a path
// that the package names. What the files in a package mean is not known here.
package deb
