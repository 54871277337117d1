package management

import (
	"cmp"
	"context"
	"time"

	"github.com/katabox/katabox/shim/journal"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// Sandbox is what the socket offers.
type Sandbox interface {
	// Ping checks that the agent answers.
	Ping(ctx context.Context) error
	// WriteMetrics writes the metrics of machine and guest.
	WriteMetrics(ctx context.Context, t *prom.Text)
	// Describe returns what runs.
	Describe() virtcontainers.Description
	// Console returns the end of what the guest wrote to its console.
	Console() string
	// OpenDebug connects to the guest's debug console.
	OpenDebug(ctx context.Context) (*guest.DebugConsole, error)
	// VolumeStats and GrowVolume handle the direct-assigned volume at a path.
	VolumeStats(ctx context.Context, path string) (guestfs.AssignedVolume, error)
	GrowVolume(ctx context.Context, path string, size uint64) (uint64, error)
	// IPTables and SetIPTables read and replace the guest's rules for packets.
	IPTables(ctx context.Context, ipv6 bool) ([]byte, error)
	SetIPTables(ctx context.Context, ipv6 bool, rules []byte) error
	// Hibernate saves the guest's memory to disk and gives it back to the host, and
	// Wake continues the sandbox. Each may take minutes.
	Hibernate(ctx context.Context) (virtcontainers.Hibernation, error)
	Wake(ctx context.Context) error
}

// Source is where the answers come from.
type Source struct {
	Sandbox Sandbox
	// Calls are the durations of the engine's calls.
	Calls *prom.Durations
	// Log is the shim's latest log lines; nil offers none.
	Log *journal.Journal
	// Profiles offers the shim's profiles.
	Profiles bool
}

// handler answers the requests for one path.
type handler struct {
	// timeout bounds the answer: some answers need the guest.
	timeout time.Duration
	answer  func(ctx context.Context, r *request) response
	// method is the request's; empty is GET.
	method string
	// maxBody bounds the request's body, if it is not 0, in place of maxBody.
	maxBody int
	// also handles another method of the same path.
	also *handler
	// upgrade, if set, takes the place of answer: it opens what the connection is
	// joined with from then on.
	upgrade func(ctx context.Context) (*guest.DebugConsole, error)
	// long, if not nil, reports whether a request waits for something to happen.
	long func(r *request) bool
}

// lasts reports whether the answer takes as long as the client wants.
func (h handler) lasts(r *request) bool { return h.upgrade != nil || h.long != nil && h.long(r) }

func (h handler) wants() string { return cmp.Or(h.method, "GET") }

// methods lists what its path answers.
func (h handler) methods() string {
	if h.also == nil {
		return h.wants()
	}
	return h.wants() + " or " + h.also.wants()
}

const (
	// guestTimeout bounds a call to the guest. A scrape waits 10 s by
	// Prometheus's default, and kata-runtime's monitor less.
	guestTimeout = 2 * time.Second
	hostTimeout  = time.Second
)

func handlers(source Source) map[string]handler {
	all := map[string]handler{
		"/metrics": {timeout: guestTimeout, answer: source.metrics},
		"/healthz": {timeout: guestTimeout, answer: source.health},
		"/sandbox": {timeout: hostTimeout, answer: source.describe},
	}
	addVolumes(all, source.Sandbox)
	addIPTables(all, source.Sandbox)
	addHibernation(all, source.Sandbox)
	addLog(all, source)
	all[DebugPath] = handler{timeout: debugTimeout, upgrade: source.Sandbox.OpenDebug}
	if source.Profiles {
		addProfiles(all)
	}
	return all
}

func (s Source) metrics(ctx context.Context, _ *request) response {
	var text prom.Text
	writeShim(&text)
	s.Calls.Write(&text, "kata_shim_rpc_durations_histogram_milliseconds", "Durations of the engine's calls, but for those that wait.",
		"action", time.Millisecond)
	s.Sandbox.WriteMetrics(ctx, &text)
	return response{200, prom.ContentType, text.Bytes()}
}

func (s Source) health(ctx context.Context, _ *request) response {
	if err := s.Sandbox.Ping(ctx); err != nil {
		return fail(503, err.Error())
	}
	return response{200, plainText, []byte("ok\n")}
}

func (s Source) describe(context.Context, *request) response {
	return jsonResponse(s.Sandbox.Describe())
}
