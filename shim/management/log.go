package management

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/katabox/katabox/shim/journal"
)

const (
	// LogPath returns the latest lines of the log, one JSON object a line. With
	// LogAfterKey it returns those with a higher number (seq); with LogWaitKey as
	// well the answer waits that many seconds for the first of them, and is empty
	// if none comes.
	LogPath = "/log"
	// LogAfterKey is the parameter of LogPath with a line's number.
	LogAfterKey = "after"
	// LogWaitKey is the parameter of LogPath with a time in seconds.
	LogWaitKey = "wait"
	// MaxLogWait bounds the wait, in seconds.
	MaxLogWait = 30
	// ConsolePath returns the end of the guest's console.
	ConsolePath = "/console"
)

func addLog(all map[string]handler, source Source) {
	all[ConsolePath] = handler{timeout: hostTimeout, answer: func(context.Context, *request) response {
		return response{200, plainText, []byte(source.Sandbox.Console())}
	}}
	if source.Log == nil {
		return
	}
	all[LogPath] = handler{
		timeout: hostTimeout + MaxLogWait*time.Second,
		answer:  func(ctx context.Context, r *request) response { return lines(ctx, source.Log, r) },
		long:    func(r *request) bool { return r.query.Has(LogWaitKey) },
	}
}

func lines(ctx context.Context, log *journal.Journal, r *request) response {
	after, err := number(r, LogAfterKey, 1<<63)
	if err != nil {
		return fail(400, err.Error())
	}
	wait, err := number(r, LogWaitKey, MaxLogWait)
	if err != nil {
		return fail(400, err.Error())
	}
	if wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Second)
		defer cancel()
		log.Wait(ctx, after)
	}
	return response{200, "application/x-ndjson", log.After(after)}
}

// number returns a parameter of a request, or 0 if it is missing.
func number(r *request, key string, most uint64) (uint64, error) {
	text := r.query.Get(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%s is %.40q: want a number up to %d", key, text, most)
	}
	return n, nil
}
