package bundle

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

var (
	single  = map[string]string{}
	infra   = map[string]string{"io.kubernetes.cri.container-type": "sandbox"}
	service = map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "pod", "io.kubernetes.cri.container-name": "web",
	}
	crioService = map[string]string{
		"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "pod", "io.kubernetes.cri-o.ContainerName": "web",
	}
	labeledService = map[string]string{
		"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "pod", "io.kubernetes.container.name": "web",
	}
)

func published(of map[string]string, value string) ([]PublishedSocket, error) {
	annotations := maps.Clone(of)
	annotations[PublishAnnotation] = value
	return PublishedSockets("c1", annotations)
}

func TestPublishedSockets(t *testing.T) {
	api, metrics := PublishedSocket{"api", "/run/api.sock", false}, PublishedSocket{"Metrics_1.x", "/m", false}
	packets := PublishedSocket{"rpc", "/run/rpc", true}
	for _, tt := range []struct {
		of    map[string]string
		value string
		want  []PublishedSocket
	}{
		{single, "", nil},
		{single, "api=/run/api.sock", []PublishedSocket{api}},
		{single, "  api=/run/api.sock\tMetrics_1.x=/m ", []PublishedSocket{api, metrics}},
		{single, "odd=/a=b:c,d", []PublishedSocket{{"odd", "/a=b:c,d", false}}},
		{single, "rpc:seqpacket=/run/rpc api:stream=/run/api.sock", []PublishedSocket{packets, api}},
		{service, "rpc:seqpacket=web:/run/rpc x:seqpacket=db:/x", []PublishedSocket{packets}},
		{service, "api=seqpacket:/run/api.sock", nil}, // a container's name
		{infra, "api=/run/api.sock", nil},
		{infra, "no sense", nil},
		{service, "api=/run/api.sock x=db:/x Metrics_1.x=web:/m", []PublishedSocket{api, metrics}},
		{service, "api=db:/run/api.sock", nil},
		{crioService, "api=web:/run/api.sock x=db:/x", []PublishedSocket{api}},
		{labeledService, "api=web:/run/api.sock x=db:/x", []PublishedSocket{api}},
	} {
		got, err := published(tt.of, tt.value)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", tt.value, err, diff)
		}
	}
}

func TestPublishedSocketsRefuses(t *testing.T) {
	var many strings.Builder
	for i := range maxPublished + 1 {
		fmt.Fprintf(&many, "n%d=/x ", i)
	}
	for value, want := range map[string]string{
		"/run/api.sock":                      "want NAME=PATH",
		"=/x":                                "want NAME=PATH",
		"a/b=/x":                             "want NAME=PATH",
		"..=/x":                              "want NAME=PATH",
		strings.Repeat("n", 17) + "=/x":      "want NAME=PATH",
		"api=":                               "want an absolute path after api=",
		"api=run/x":                          "want an absolute path after api=",
		"api=:/x":                            "want an absolute path after api=",
		"api=web:x":                          "want an absolute path without",
		"api=/run/../x":                      "want an absolute path without",
		"api=//x":                            "want an absolute path without",
		"api=/x/":                            "want an absolute path without",
		"api=/" + strings.Repeat("x", 1<<10): "want an absolute path without",
		"api=/x api=/y":                      "used twice",
		"api=/x api:seqpacket=/y":            "used twice",
		"api:dgram=/x":                       "want api:stream=PATH or api:seqpacket=PATH",
		"api:=/x":                            "want api:stream=PATH or api:seqpacket=PATH",
		"api:seqpacket:stream=/x":            "want api:stream=PATH or api:seqpacket=PATH",
		":seqpacket=/x":                      "want NAME=PATH",
		"api:seqpacket":                      "want NAME=PATH",
		"api=web:/x":                         "is in no pod",
		many.String():                        "at most 16",
	} {
		got, err := published(single, value)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), PublishAnnotation) {
			t.Errorf("%.40q: %v, %v, want %q", value, got, err, want)
		}
	}
}
