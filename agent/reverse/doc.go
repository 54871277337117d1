// Package reverse listens in the guest on behalf of servers on the host: the
// engine's DNS resolver, and UNIX sockets that are mounted into containers. It
// is the reverse of package forward, but here too the host opens every
// connection:
//
//	process in a container       agent                         host
//	   connect ───────────────> listener ──Incoming(n)──────> listen connection
//	                            waiting n <──────────take n── another connection
//	      <───────────── bytes, half-closes, resets ────────────>
//
//	   query ─────────────────> UDP socket ──(id, query)────> datagram connection
//	   answer <──────────────── UDP socket <─(id, answer)────
//
// Listeners, and connections that wait to be taken, end with the connection
// that requested them. Connections, waiting ones, and unanswered queries are
// bounded in number and time.
package reverse
