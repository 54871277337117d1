package config

import (
	"fmt"
	"net/url"
	"strings"
)

// agentTracingKeys and tracingKeys configure OpenTelemetry. The names are Kata's,
// whose shim sends Jaeger's own format.
var agentTracingKeys = []key{
	define("agent.kata.enable_tracing", false, boolean,
		func(d *draft) *bool { return &d.Agent.Tracing },
		"Add what the guest did to the pod's traces: its boot, and each container's creation and start. Needs "+
			"runtime.enable_tracing.").
		annotated("config.agent.enable_tracing"),
}

var tracingKeys = []key{
	define("runtime.enable_tracing", false, boolean,
		func(d *draft) *bool { return &d.Runtime.Tracing.Enabled },
		"Send traces by OpenTelemetry's protocol (OTLP): the engine's calls, the pod's boot, each container's creation and start. "+
			"They are part of the engine's own traces if it sends its trace context. See docs/observability.md."),
	define("runtime.jaeger_endpoint", "", httpURL,
		func(d *draft) *string { return &d.Runtime.Tracing.Endpoint },
		"The URL of the receiver of traces, with its path: OTLP over HTTP, which Jaeger has at http://HOST:4318/v1/traces. Empty: "+
			"as OpenTelemetry's environment variables in the engine's service say, otherwise port 4318 of this host."),
	define("runtime.jaeger_user", "", text,
		func(d *draft) *string { return &d.Runtime.Tracing.User },
		"The user name for HTTP's basic authentication at the receiver."),
	define("runtime.jaeger_password", "", text,
		func(d *draft) *string { return &d.Runtime.Tracing.Password },
		"The password for it."),
}

// httpURL is a URL of a web server, or empty.
var httpURL = kind[string]{"a URL http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH, or an empty string", func(v any) (string, bool) {
	s, ok := text.parse(v)
	if !ok || s == "" {
		return s, ok
	}
	u, err := url.Parse(s)
	return s, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.Fragment == ""
}}

// jaegerPath ends the URLs of Jaeger's collector for its own format, which
// Kata's shim sends.
const jaegerPath = "/api/traces"

// check finds a receiver that would not understand what is sent to it.
func (t Tracing) check() error {
	u, err := url.Parse(t.Endpoint)
	if err != nil || !t.Enabled || strings.TrimRight(u.Path, "/") != jaegerPath {
		return nil //nolint:nilerr // the key's kind has parsed it
	}
	return fmt.Errorf("runtime.jaeger_endpoint = %q: that is the path of Jaeger's own format; traces are sent as OTLP: want "+
		"%s://%s:4318/v1/traces, which Jaeger 1.35 and later serves too", t.Endpoint, u.Scheme, u.Hostname())
}
