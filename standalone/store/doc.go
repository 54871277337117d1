// Package store keeps the files of containers without an engine: the layers of
// images, each unpacked once, the images that consist of them, and one directory
// for each container.
//
//	<root>/lock                  shared: adds and uses; exclusive: sweeps
//	<root>/clean                 exclusive: cleaning up after dead containers
//	<root>/layers/<chain>/       one layer, unpacked; whole once it has this name
//	<root>/layers/new-*          being unpacked
//	<root>/images/<name's sum>   an image: its name, its configuration, its layers
//	<root>/containers/<name>/    a container's; "image" is the image it runs
//
// Users and groups are looked up in copies of a container's files, which the container
// can change (users.go).
//
// A layer is identified by its chain, the digest over its own tar and all below
// it: the attributes of a directory that the layer does not mention come from
// those below. If the kernel can stack layers (overlayfs), each is kept
// separately; otherwise a chain is unpacked into one tree, and a container gets a
// copy of it. A part of a layer that a killed process leaves is never mistaken
// for a complete one, and the next sweep removes it.
//
// Layers are hostile. They are unpacked by containerd's archive package, which
// does not follow links out of the tree, on a thread whose root is the store's
// layers; the content of a layer is compared with the digest in the image's
// configuration.
package store
