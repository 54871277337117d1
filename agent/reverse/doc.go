// Package reverse listens in the guest for what is on the host: the engine's
// DNS resolver, and UNIX sockets that are mounted into containers. It is the
// reverse of package forward, and the host opens every connection here too:
//
//	process in a container       agent                         host
//	   connect ───────────────> listener ──Incoming(n)──────> listen connection
//	                            waiting n <──────────take n── another connection
//	      <───────────── bytes, half-closes ────────────────────>
//
//	   query ─────────────────> UDP socket ──(id, query)────> datagram connection
//	   answer <──────────────── UDP socket <─(id, answer)────
//
// What listens, and what waits to be taken, ends with the connection that asked
// for it. Connections, those that wait, and queries without an answer are
// bounded in number and time.
package reverse
