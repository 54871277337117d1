package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/management"
)

// VolumeStats queries the pods for a direct-assigned volume and returns the first
// answer of a pod that has it, as JSON of CSI's NodeGetVolumeStatsResponse. It fails
// with errdefs.ErrNotFound if no pod has it.
func VolumeStats(ctx context.Context, pods []Pod, path string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return ofVolume(path, pods, func(p Pod) ([]byte, error) {
		answer, err := p.askVolume(ctx, path)
		if err == nil {
			cancel() // a pod that hangs is not waited for
		}
		return answer, err
	})
}

func (p Pod) askVolume(ctx context.Context, path string) ([]byte, error) {
	return p.Ask(ctx, management.VolumeStatsPath+"?"+url.Values{management.VolumePathKey: {path}}.Encode())
}

// GrowVolume makes the pod that has a direct-assigned volume enlarge it, and
// returns the new size of its disk in bytes. size is as in
// management.ResizeRequest. It takes management.GrowTimeout and 4 s at most. It fails
// with errdefs.ErrNotFound if no pod has the volume.
func GrowVolume(ctx context.Context, pods []Pod, path string, size uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, management.GrowTimeout+askTimeout)
	defer cancel()
	body, err := json.Marshal(management.ResizeRequest{VolumePath: path, Size: json.Number(strconv.FormatUint(size, 10))})
	if err != nil {
		return 0, err
	}
	answer, err := ofVolume(path, pods, func(p Pod) ([]byte, error) { return p.growVolume(ctx, path, body) })
	if err != nil {
		return 0, err
	}
	var now management.ResizeResponse
	if err := json.Unmarshal(answer, &now); err != nil {
		return 0, fmt.Errorf("grow volume %s: read the answer: %w", path, err)
	}
	return now.Size, nil
}

// growVolume sends a pod the request to enlarge a volume once it has answered a
// question about it: a pod that hangs would have much longer for the request. Only
// those that have the volume get it, so it is not cut short when another answers.
func (p Pod) growVolume(ctx context.Context, path string, body []byte) ([]byte, error) {
	_, err := p.askVolume(ctx, path)
	if err != nil && !errors.As(err, new(refusal)) { // one that has it may refuse to tell: it hibernates
		return nil, err
	}
	answer, err := p.request(ctx, http.MethodPost, management.VolumeResizePath, body)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.ID, err)
	}
	return answer, nil
}

// ofVolume asks all pods and returns the answer of the pod that has the volume.
// If none has it, it returns the errors of the pods that did not answer, or
// errdefs.ErrNotFound.
func ofVolume(path string, pods []Pod, ask func(Pod) ([]byte, error)) ([]byte, error) {
	answers, errs := make([][]byte, len(pods)), make([]error, len(pods))
	Each(pods, func(i int, p Pod) {
		answers[i], errs[i] = ask(p)
		if errdefs.IsNotFound(errs[i]) {
			errs[i] = nil
		}
	})
	for _, answer := range answers {
		if answer != nil {
			return answer, nil
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("volume %s: %w", path, err)
	}
	return nil, fmt.Errorf("volume %s: no running container has it mounted: %w", path, errdefs.ErrNotFound)
}
