// Package store keeps what containers without an engine are made of: the
// layers of images, each unpacked once, which images have them, and one
// directory for each container.
//
//	<root>/lock                  shared: adds and uses; exclusive: sweeps
//	<root>/layers/<chain>/       one layer, unpacked; whole once it has this name
//	<root>/layers/new-*          being unpacked
//	<root>/images/<name's sum>   an image: its name, its configuration, its layers
//	<root>/containers/<name>/    a container's; "image" is the image it runs
//
// A layer is known by its chain, the sum over the layer's own tar and all below
// it: what a directory that the layer does not mention looks like comes from
// there. Where the kernel can put layers together (overlayfs) each is kept
// alone; else a chain is unpacked into one tree, and a container gets a copy of
// it. What a process that was killed leaves is never taken for whole, and the
// next sweep removes it.
//
// Layers are hostile. They are unpacked by containerd's archive package, which
// follows no link out of the tree, on a thread whose root is the store's layers;
// what a layer contains is compared with the sum that the image's configuration
// gives.
package store
