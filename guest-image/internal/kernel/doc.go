// Package kernel extracts the kernel from a bzImage: the uncompressed ELF, which
// QEMU starts at its Xen PVH entry without firmware and without the kernel
// decompressing itself.
//
// Sources: Documentation/arch/x86/boot.rst (the setup header, the payload),
// Xen's public/elfnote.h (the PVH entry).
package kernel
