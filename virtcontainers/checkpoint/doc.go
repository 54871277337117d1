// Package checkpoint reads and writes the file of a saved sandbox: a description of
// the sandbox (Record), and its machine's state.
//
// The file begins with magic, a byte that says whether the rest is encrypted, and a
// salt. The rest is an S2 stream (github.com/klauspost/compress/s2) of the record,
// as JSON after its length, and of what the VMM wrote. If there is a key, the
// stream is encrypted and authenticated in the DARE format
// (github.com/minio/sio); otherwise anyone who can read the file can read the
// guest's memory, and only accidental damage is noticed.
//
// A file is trusted no more than a guest: its writer decides what the guest is, and
// the guest is hostile anyway. Everything that is read from it is bounded.
package checkpoint
