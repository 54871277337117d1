// Package tinyprogram builds executables of a few hundred bytes that make system
// calls and use no other memory than their stack, for Linux on x86-64. They are
// built where they are needed, so that a shim needs neither another file nor an
// assembler.
package tinyprogram
