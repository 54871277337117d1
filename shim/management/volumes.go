package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// The paths for direct-assigned volumes, with Kata Containers' names
// (src/runtime/pkg/containerd-shim-v2/shim_management.go).
const (
	VolumeStatsPath  = "/direct-volume/stats"
	VolumeResizePath = "/direct-volume/resize"
	// VolumePathKey is the parameter of VolumeStatsPath with the volume's path.
	// The path may also follow, escaped, as in VolumeStatsPath/%2Fvolume.
	VolumePathKey = "path"
	// GrowTimeout bounds the growth of a volume: the guest's kernel may have to
	// write a lot.
	GrowTimeout = 2 * time.Minute
)

// ResizeRequest is the body of a request to VolumeResizePath.
type ResizeRequest struct {
	// VolumePath is the volume's, or its device's.
	VolumePath string
	// Size is in bytes, as a number or as a string; without it, or with 0, the
	// volume becomes as large as its device or file is.
	Size json.Number `json:",omitempty"`
}

// ResizeResponse is the answer: the new size of the volume's disk in bytes.
type ResizeResponse struct {
	Size uint64 `json:"size"`
}

// volumeStats is CSI's NodeGetVolumeStatsResponse in the JSON of Kata Containers'
// runtime: units are 1 for bytes and 2 for inodes.
type volumeStats struct {
	Usage     []volumeUsage   `json:"usage"`
	Condition volumeCondition `json:"volume_condition"`
}

type volumeUsage struct {
	Available uint64 `json:"available"`
	Total     uint64 `json:"total"`
	Used      uint64 `json:"used"`
	Unit      int    `json:"unit"`
}

type volumeCondition struct {
	Abnormal bool   `json:"abnormal"`
	Message  string `json:"message"`
}

func addVolumes(all map[string]handler, sandbox Sandbox) {
	stats := handler{timeout: guestTimeout, answer: func(ctx context.Context, r *request) response {
		path, below := strings.CutPrefix(r.path, VolumeStatsPath+"/")
		if !below {
			path = r.query.Get(VolumePathKey)
		}
		return statsOf(ctx, sandbox, path)
	}}
	all[VolumeStatsPath], all[VolumeStatsPath+"/"] = stats, stats
	all[VolumeResizePath] = handler{timeout: GrowTimeout, method: "POST", answer: func(ctx context.Context, r *request) response {
		return resize(ctx, sandbox, r.body)
	}}
}

func statsOf(ctx context.Context, sandbox Sandbox, path string) response {
	if err := checkVolume(path); err != nil {
		return failed(err)
	}
	v, err := sandbox.VolumeStats(ctx, path)
	if err != nil {
		return failed(err)
	}
	stats := volumeStats{
		Usage:     []volumeUsage{inUnit(v.Bytes, 1), inUnit(v.Inodes, 2)},
		Condition: volumeCondition{Message: "OK"},
	}
	if v.Failed {
		stats.Condition = volumeCondition{Abnormal: true, Message: "the file system is read-only: the guest's kernel found an error in it"}
	}
	return jsonResponse(stats)
}

func inUnit(u guest.Usage, unit int) volumeUsage {
	return volumeUsage{Available: u.Available, Total: u.Total, Used: u.Used, Unit: unit}
}

func resize(ctx context.Context, sandbox Sandbox, body []byte) response {
	path, size, err := parseResize(body)
	if err != nil {
		return failed(err)
	}
	now, err := sandbox.GrowVolume(ctx, path, size)
	if err != nil {
		return failed(err)
	}
	return jsonResponse(ResizeResponse{Size: now})
}

func parseResize(body []byte) (path string, size uint64, err error) {
	var r ResizeRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return "", 0, fmt.Errorf("read request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if r.Size != "" {
		if size, err = strconv.ParseUint(r.Size.String(), 10, 64); err != nil {
			return "", 0, fmt.Errorf("read request: Size is %.40q, want a number of bytes: %w", r.Size, errdefs.ErrInvalidArgument)
		}
	}
	return r.VolumePath, size, checkVolume(r.VolumePath)
}

func checkVolume(path string) error {
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("the volume's path is %q, want an absolute one: %w", path, errdefs.ErrInvalidArgument)
	}
	return nil
}

// statuses are the HTTP statuses of errors, by kind.
var statuses = []struct {
	is     func(error) bool
	status int
}{
	{errdefs.IsNotFound, 404}, {errdefs.IsInvalidArgument, 400}, {errdefs.IsFailedPrecondition, 409},
	{errdefs.IsNotImplemented, 501}, {errdefs.IsUnavailable, 503},
	{func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, 503},
}

// failed returns the answer for an error.
func failed(err error) response {
	for _, s := range statuses {
		if s.is(err) {
			return fail(s.status, err.Error())
		}
	}
	return fail(500, err.Error())
}

func jsonResponse(v any) response {
	data, err := json.Marshal(v)
	if err != nil {
		return fail(500, err.Error())
	}
	return response{200, "application/json", append(data, '\n')}
}
