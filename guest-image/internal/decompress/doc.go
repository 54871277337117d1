// Package decompress decompresses kernels and kernel modules, with a limit on the
// output.
//
// gzip, bzip2 and the legacy LZ4 frame are decoded here; xz and zstd by the
// host's tools of these names. LZMA (alone) and LZO are not supported.
package decompress
