// Package unixsocket connects to UNIX sockets by a descriptor of the file instead
// of its path. A path can be longer than an address (108 bytes, unix(7)), and may
// have been replaced by the time of the connection.
package unixsocket
