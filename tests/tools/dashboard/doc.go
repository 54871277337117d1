// Dashboard draws deploy/grafana-dashboard.json for the documentation: it runs
// some pods, has Prometheus scrape "kata-runtime monitor" for a while, evaluates
// each panel's queries, and writes the panels as an SVG. It fails if a query is
// invalid or has no result. Grafana itself is not involved.
//
//	make build guest-image containerd
//	apt-get install prometheus      # or name another one by -prometheus
//	go run ./tests/tools/dashboard
package main
