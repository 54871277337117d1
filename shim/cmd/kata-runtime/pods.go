package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/procstat"
)

const podsDescription = "ENGINE is the engine's namespace. STATE is running or hibernating. MEMORY is the resident memory of QEMU and the shim, with\n" +
	"the guest's page cache. If a pod does not answer, the columns that only its shim can fill have a dash. With --root before\n" +
	"it, or with --quiet or --format after it, list is the OCI runtime's command and lists the containers below --root."

func podsCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "pods", Aliases: []string{"list"}, Usage: "list the running pods of all engines", Description: podsDescription,
		Flags: []cli.Flag{jsonFlag()}, Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			list, err := h.pods(ctx)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return writeJSON(c.Root().Writer, list)
			}
			return writePods(c.Root().Writer, list, time.Now())
		},
	}
}

// podLine describes one pod.
type podLine struct {
	virtcontainers.Description
	// Engine is the engine's address, EngineNamespace its namespace.
	Engine          string `json:"engine,omitempty"`
	EngineNamespace string `json:"engineNamespace,omitempty"`
	ShimPID         int    `json:"shimPID"`
	// MemoryBytes is the resident memory of QEMU and the shim.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Error is why the shim did not answer.
	Error string `json:"error,omitempty"`
}

// state is running or hibernating, or a dash if the shim did not answer.
func (p podLine) state() string {
	switch {
	case p.Error != "":
		return "-"
	case p.Hibernation != nil:
		return "hibernating"
	}
	return "running"
}

// pods asks all pods side by side.
func (h host) pods(ctx context.Context) ([]podLine, error) {
	pods, err := monitor.Pods(h.records)
	if err != nil {
		return nil, err
	}
	list := make([]podLine, len(pods))
	monitor.Each(pods, func(i int, p monitor.Pod) {
		d, err := p.Describe(ctx)
		d.ID, d.VMPID = p.ID, p.VM
		d.Containers = append([]virtcontainers.ContainerDescription{}, d.Containers...) // [] in JSON, not null
		line := podLine{Description: d, Engine: p.Owner.Address, EngineNamespace: p.Owner.Namespace, ShimPID: p.Shim}
		if err != nil {
			line.Error = oneLine(err.Error())
		}
		for _, pid := range []int{p.VM, p.Shim} {
			line.MemoryBytes += resident(pid)
		}
		list[i] = line
	})
	return list, nil
}

// resident is a process's resident memory in bytes, or 0 if the process does not
// exist.
func resident(pid int) uint64 {
	p, err := procstat.OfProcess(pid)
	if err != nil {
		return 0
	}
	return uint64(procstat.Find(p.Status, "vmrss")) << 10
}

// shownID is the number of bytes of an id that are shown.
const shownID = 20

func writePods(out io.Writer, list []podLine, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPOD\tENGINE\tAGE\tSTATE\tCONTAINERS\tSHIM\tVM\tMEMORY")
	for _, p := range list {
		pod, age, containers := "-", "-", "-"
		if p.Error == "" {
			age, containers = now.Sub(p.Began).Round(time.Second).String(), fmt.Sprint(len(p.Containers))
		}
		if p.Pod.Name != "" {
			pod = p.Pod.Namespace + "/" + p.Pod.Name
		}
		engine := p.EngineNamespace
		if engine == "" {
			engine = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d MiB\n",
			p.ID[:min(len(p.ID), shownID)], pod, engine, age, p.state(), containers, p.ShimPID, p.VMPID, p.MemoryBytes>>20)
	}
	return w.Flush()
}
