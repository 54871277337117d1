// Package pack makes container images of files, the same bytes for the same files.
// It packs layers (Layer) and layouts (Archive), and says what each image has
// (Image); what an image, an index and a layout are is go-containerregistry's
// knowledge. Besides the installer's image, those that the tests run are made
// with it.
package pack
