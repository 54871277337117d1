// Command image builds the container image of the installer: the files that "make
// install" installs below /opt/kata, with kata-runtime install as the entry
// point. It writes an OCI image layout, as a directory and as a tar file for "ctr
// image import".
//
// Nothing is downloaded and no engine is needed. The same files and version give
// the same bytes.
package main
