package management

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"time"
)

const (
	profileRoot = "/debug/pprof/"
	// defaultSeconds and maxSeconds bound a profile of the CPU.
	defaultSeconds = 10
	maxSeconds     = 60
)

// addProfiles adds the paths that Go's tools expect.
func addProfiles(all map[string]handler) {
	for _, p := range pprof.Profiles() {
		all[profileRoot+p.Name()] = handler{timeout: hostTimeout, answer: func(_ context.Context, r *request) response {
			debug, _ := strconv.Atoi(r.query.Get("debug"))
			return profile(func(out *bytes.Buffer) error { return p.WriteTo(out, min(max(debug, 0), 2)) }, debug > 0)
		}}
	}
	all[profileRoot+"profile"] = handler{timeout: (maxSeconds + 1) * time.Second, answer: cpuProfile}
}

func profile(write func(*bytes.Buffer) error, text bool) response {
	var out bytes.Buffer
	if err := write(&out); err != nil {
		return fail(500, err.Error())
	}
	if text {
		return response{200, plainText, out.Bytes()}
	}
	return response{200, "application/octet-stream", out.Bytes()}
}

// cpuProfile takes a profile for as many seconds as the request asks for; one at
// a time.
func cpuProfile(ctx context.Context, r *request) response {
	seconds := defaultSeconds
	if s := r.query.Get("seconds"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxSeconds {
			return fail(400, fmt.Sprintf("seconds is %q: want 1 to %d", s, maxSeconds))
		}
		seconds = n
	}
	return profile(func(out *bytes.Buffer) error {
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, false)
}
