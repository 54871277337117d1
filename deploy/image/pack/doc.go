// Package pack makes container images of files, the same bytes for the same files.
// It packs layers (Layer) and layouts (Archive) from descriptions of images
// (Image); go-containerregistry defines the formats. It makes the installer's image
// and those that the tests run.
package pack
