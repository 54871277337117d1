package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

const (
	// scrapeTimeout bounds one scrape of the host, below Prometheus's 10 s.
	scrapeTimeout = 9 * time.Second
	// requestTimeout, writeTimeout and idleTimeout bound a client of the monitor: the
	// reading of its request, the answer, and the wait for its next request. Prometheus
	// scrapes once a minute by default.
	requestTimeout = 5 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// maxHeader bounds what precedes a request's body, in bytes.
	maxHeader = 16 << 10
	// shutdownTimeout bounds requests that are being answered when the monitor
	// ends.
	shutdownTimeout = 10 * time.Second
)

// maxAsking is how many clients may ask single pods at a time.
const maxAsking = 8

// Monitor serves the metrics of a host's pods.
type Monitor struct {
	root     string
	registry *prometheus.Registry
	// scraping serializes scrapes: a concurrent one waits, until its timeout.
	scraping chan struct{}
	// asking has those that ask one pod, maxAsking at most.
	asking chan struct{}

	pods     prometheus.Gauge
	scrapes  prometheus.Counter
	failures prometheus.Counter
	took     prometheus.Histogram
}

// New makes a monitor of the pods whose records are below root.
func New(root string) *Monitor {
	const prefix = "kata_monitor"
	m := &Monitor{
		root: root, registry: prometheus.NewRegistry(), scraping: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking),
		pods:     prometheus.NewGauge(prometheus.GaugeOpts{Namespace: prefix, Name: "running_shim_count", Help: "Pods whose shims run."}),
		scrapes:  prometheus.NewCounter(prometheus.CounterOpts{Namespace: prefix, Name: "scrape_count", Help: "Scrapes of the host."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Namespace: prefix, Name: "scrape_failed_count", Help: "Pods that did not answer a scrape."}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: prefix, Name: "scrape_durations_histogram_milliseconds",
			Help: "Durations of the scrapes of all pods.", Buckets: prometheus.ExponentialBuckets(1, 2, 14)}),
	}
	m.registry.MustRegister(m.pods, m.scrapes, m.failures, m.took)
	own := prometheus.WrapRegistererWithPrefix(prefix+"_", m.registry)
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Serve answers on the listener until ctx ends; then it closes the listener and
// waits for requests in progress.
func (m *Monitor) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: m.Handler(), ReadTimeout: requestTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	var ending sync.WaitGroup
	ending.Add(1)
	stop := context.AfterFunc(ctx, func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(within)
		ending.Done()
	})
	err := server.Serve(l)
	if stop() {
		ending.Done()
	}
	ending.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metrics: %w", err)
}

// Handler answers /metrics, /sandboxes and /healthz.
func (m *Monitor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", m.metrics)
	mux.HandleFunc("GET /sandboxes", m.sandboxes)
	mux.HandleFunc("GET /healthz", m.healthz)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "/metrics\n/sandboxes\n/healthz\n") })
	return mux
}

func (m *Monitor) metrics(w http.ResponseWriter, r *http.Request) {
	if id := r.URL.Query().Get("sandbox"); id != "" {
		m.metricsOf(w, r, id)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	select {
	case m.scraping <- struct{}{}:
		defer func() { <-m.scraping }()
	case <-ctx.Done():
		http.Error(w, "another scrape is under way", http.StatusServiceUnavailable)
		return
	}
	families, err := m.scrape(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	if err := families.Write(w); err != nil {
		log.G(ctx).WithError(err).Debug("a scrape's client has gone")
	}
}

// metricsOf answers with the metrics of one pod, without labels of it, as Kata
// Containers' monitor does.
func (m *Monitor) metricsOf(w http.ResponseWriter, r *http.Request, id string) {
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	default:
		http.Error(w, fmt.Sprintf("%d clients ask single pods: try again", maxAsking), http.StatusServiceUnavailable)
		return
	}
	pod, err := Find(m.root, id)
	if err == nil && pod.ID != id || errdefs.IsFailedPrecondition(err) { // id is the beginning of others
		err = fmt.Errorf("find sandbox %s: no pod of that id runs: %w", id, errdefs.ErrNotFound)
	}
	var text []byte
	if err == nil {
		text, err = pod.Ask(r.Context(), "/metrics")
	}
	switch {
	case errdefs.IsNotFound(err):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		_, _ = w.Write(text) // An error is the client's: it has gone.
	}
}

// scrape collects the metrics of all pods and of the monitor itself.
func (m *Monitor) scrape(ctx context.Context) (Families, error) {
	began := time.Now()
	pods, err := Pods(m.root)
	if err != nil {
		return nil, err
	}
	families, errs := Scrape(ctx, pods)
	for _, err := range errs {
		log.G(ctx).WithError(err).Debug("a pod did not answer")
	}
	m.pods.Set(float64(len(pods)))
	m.scrapes.Inc()
	m.failures.Add(float64(len(errs)))
	m.took.Observe(float64(time.Since(began)) / float64(time.Millisecond))
	own, err := m.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather the monitor's own metrics: %w", err)
	}
	for _, family := range own {
		families[family.GetName()] = family
	}
	return families, nil
}

// sandboxes lists the ids of the pods, one a line, or as JSON if the client
// accepts that.
func (m *Monitor) sandboxes(w http.ResponseWriter, r *http.Request) {
	pods, err := Pods(m.root)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	ids := make([]string, len(pods))
	for i, p := range pods {
		ids[i] = p.ID
	}
	if r.Header.Get("Accept") == "application/json" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ids)
		return
	}
	for _, id := range ids {
		fmt.Fprintln(w, id)
	}
}
