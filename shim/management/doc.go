// Package management serves a sandbox's management API to operators, on a UNIX
// socket in the directory of its record, for root alone:
//
//	GET /metrics        numbers, in Prometheus's text format
//	GET /healthz        200 when the agent answers, else 503
//	GET /sandbox        the pod's description, as JSON (virtcontainers.Description)
//	GET /debug-console                  becomes a connection to the guest's debug console (DebugProtocol)
//	GET /direct-volume/stats?path=PATH  size and use of a volume, as CSI's JSON
//	POST /direct-volume/resize          makes a volume larger (ResizeRequest)
//	GET, PUT /iptables, /ip6tables      the guest's iptables rules, as iptables-save writes them
//	POST /hibernate     saves the guest's memory to disk, and returns virtcontainers.Hibernation as JSON
//	POST /wake          continues a pod that hibernates
//	GET /log?after=N&wait=SECONDS       the latest lines of the shim's log and the guest's, as JSON
//	GET /console                        the end of the guest's console
//	GET /debug/pprof/.. the shim's profiles, with enable_pprof
//
// It implements only as much of HTTP as this needs: one request for each
// connection, a body only with its length. Go's server would add megabytes to each
// pod's shim (docs/adr/0040). The number of connections and the time of each are
// bounded, and no lock is held while a request is answered. The socket is closed
// when the sandbox has ended.
package management
