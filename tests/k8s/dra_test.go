package k8s

import (
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/katabox/katabox/tests/k8s/node"
)

// driver is a driver for Dynamic Resource Allocation, whose device is one of a CDI file.
type driver struct{ name, socket, cdiDevice string }

// handle answers the methods of the kubelet's APIs for plugins and for DRA
// (k8s.io/kubelet, pkg/apis/pluginregistration/v1 and pkg/apis/dra/v1).
func (d driver) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request, answer message
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	switch filepath.Base(method) {
	case "GetInfo":
		answer = answer.with(1, "DRAPlugin").with(2, d.name).with(3, d.socket).with(4, "v1.DRAPlugin")
	case "NotifyRegistrationStatus":
	case "NodePrepareResources":
		device := message(nil).with(2, node.Name).with(3, "one").with(4, d.cdiDevice)
		for _, claim := range request.get(1) {
			answer = answer.entry(1, string(claim.get(2)[0]), string(message(nil).with(1, string(device))))
		}
	case "NodeUnprepareResources":
		for _, claim := range request.get(1) {
			answer = answer.entry(1, string(claim.get(2)[0]), "")
		}
	default:
		return fmt.Errorf("unexpected method %s", method)
	}
	return stream.SendMsg(&answer)
}

// get returns the values of a field of texts or messages. What cannot be parsed ends
// the message.
func (m message) get(number protowire.Number) []message {
	var values []message
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return values
		}
		m = m[n:]
		if n = protowire.ConsumeFieldValue(field, kind, m); n < 0 {
			return values
		}
		if field == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(m)
			values = append(values, value)
		}
		m = m[n:]
	}
	return values
}

// claimed are a driver's class of devices, its device, and a claim on it.
const claimed = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: $RUNTIME.katabox.test}
spec: {selectors: [{cel: {expression: "device.driver == '$RUNTIME.katabox.test'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: $RUNTIME}
spec: {driver: $RUNTIME.katabox.test, nodeName: %[1]s, pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}, devices: [{name: one}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: $RUNTIME}
spec: {devices: {requests: [{name: device, exactly: {deviceClassName: $RUNTIME.katabox.test}}]}}
`

// A claim on a driver's device gives the container that names it what the driver's CDI
// file describes.
func TestResourceClaims(t *testing.T) {
	both(t, func(s *stage) {
		s.vendor()
		d := driver{s.runtime + ".katabox.test", "/var/lib/kubelet/plugins_registry/" + s.runtime + "-reg.sock", "katabox.test/" + s.runtime + "=one"}
		serveRaw(s.T, d.socket, d.handle)
		s.apply(fmt.Sprintf(claimed, node.Name))
		defer func() {
			s.clear()
			s.must("delete", "resourceclaim/"+s.runtime, "resourceslice/"+s.runtime, "deviceclass/"+d.name)
		}()
		pod := s.pod("claim", `
			resourceClaims: [{name: claim, resourceClaimName: $RUNTIME}]
			containers:
			- {name: c, image: $BUSYBOX, command: [sleep, "1000"], resources: {claims: [{name: claim}]}}
			- {name: other, image: $BUSYBOX, command: [sleep, "1000"]}`)
		s.ready(pod)
		s.same("what the container sees", s.sh(pod, "echo $ALL $ONE; id -G; stat -c '%A %u %g' /dev/fuse0 /dev/disk0; cat /cdi/file"),
			"all one\n0 4242\ncrw------- 7 8\nbrw------- 0 0\nvendor")
		s.same("what the other one sees", s.must("exec", pod, "-c", "other", "--", "sh", "-c", "echo $ALL; ls -d /cdi /dev/disk0 2>/dev/null; true"), "\n")
	})
}
