package management

import (
	"context"
	"time"
)

// The paths that make a pod hibernate and wake it: POST, without a body. The answer
// at HibernatePath is a virtcontainers.Hibernation as JSON, that at WakePath is
// empty.
const (
	HibernatePath = "/hibernate"
	WakePath      = "/wake"
	// HibernateTimeout bounds each of the two: a guest may have many GiB of memory,
	// and the disk may be slow.
	HibernateTimeout = 10 * time.Minute
)

func addHibernation(all map[string]handler, sandbox Sandbox) {
	all[HibernatePath] = handler{timeout: HibernateTimeout, method: "POST", answer: func(ctx context.Context, _ *request) response {
		saved, err := sandbox.Hibernate(ctx)
		if err != nil {
			return failed(err)
		}
		return jsonResponse(saved)
	}}
	all[WakePath] = handler{timeout: HibernateTimeout, method: "POST", answer: func(ctx context.Context, _ *request) response {
		if err := sandbox.Wake(ctx); err != nil {
			return failed(err)
		}
		return response{status: 200, contentType: plainText}
	}}
}
