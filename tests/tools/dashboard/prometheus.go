package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// stopTimeout bounds the end of a program; queryTimeout and maxAnswer, in bytes,
// bound a query.
const (
	stopTimeout  = 20 * time.Second
	queryTimeout = time.Minute
	maxAnswer    = 16 << 20
)

// monitorScript runs the monitor where it sees the records of some pods only:
// others of the host are not to be in the picture.
const monitorScript = `set -e
mkdir -p "$1/shown"
mount --make-rprivate /
for name in $4; do
	mkdir "$1/shown/$name"
	mount --bind "/run/kata-containers/sandboxes/$name" "$1/shown/$name"
done
mount --rbind "$1/shown" /run/kata-containers/sandboxes
exec "$2" monitor --listen "$3"`

// prometheus is a running Prometheus and the monitor that it scrapes.
type prometheus struct {
	url      string
	children []*harness.Child
}

func startPrometheus(ctx context.Context, d *harness.Daemon, program string, names []string) (*prometheus, error) {
	monitor, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	own, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(d.Dir, "prometheus.yml")
	text := "global: {scrape_interval: 10s}\nscrape_configs:\n- job_name: kata\n  static_configs: [{targets: [" + strconv.Quote(monitor) + "]}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	list := ""
	for _, name := range names {
		list += name + "\n"
	}
	p := &prometheus{url: "http://" + own}
	commands := []*exec.Cmd{
		exec.Command("unshare", "-m", "sh", "-c", monitorScript, "monitor", d.Dir, filepath.Join(d.Layout().Bin(), "kata-runtime"), monitor, list),
		exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(d.Dir, "tsdb"), "--web.listen-address="+own),
	}
	for i, address := range []string{"http://" + monitor + "/sandboxes", p.url + "/-/ready"} {
		c, err := harness.StartChild(commands[i], d.LogPath)
		if err == nil {
			p.children = append(p.children, c)
			err = c.Ready(ctx, func(ctx context.Context) error { _, err := get(ctx, address); return err })
		}
		if err != nil {
			return nil, errors.Join(err, p.stop(context.WithoutCancel(ctx)))
		}
	}
	return p, nil
}

func (p *prometheus) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var errs []error
	for _, c := range p.children {
		errs = append(errs, c.Stop(ctx))
	}
	return errors.Join(errs...)
}

// freeAddress returns an address on which nothing listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, err
}

// series is one line of a graph.
type series struct {
	Labels map[string]string `json:"metric"`
	Values []point           `json:"values"`
}

// point is a time, in seconds, and a value, as Prometheus's API has them.
type point struct{ at, value float64 }

func (p *point) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &[]any{&p.at, &text}); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(text, 64)
	p.value = value
	return err
}

// query evaluates an expression at each step of a time range.
func (p *prometheus) query(ctx context.Context, expression string, from, to time.Time) ([]series, error) {
	step := max(to.Sub(from)/200, time.Second)
	values := url.Values{
		"query": {expression}, "step": {strconv.Itoa(int(step.Seconds()))},
		"start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)},
	}
	body, err := get(ctx, p.url+"/api/v1/query_range?"+values.Encode())
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expression, err)
	}
	var answer struct{ Data struct{ Result []series } }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read answer to %s: %w", expression, err)
	}
	return answer.Data.Result, nil
}
