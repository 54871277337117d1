// Command image builds the container image of the installer: what "make install"
// installs below /opt/kata, and kata-runtime install as what runs. It writes an OCI
// image layout, as a directory and as a tar file for "ctr image import".
//
// Nothing is downloaded and no engine is asked. The same files and version give the
// same bytes.
package main
