package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/standalone/container"
	"github.com/katabox/katabox/standalone/usernet"
)

func psCommand() *cli.Command {
	return &cli.Command{
		Name: "ps", Usage: "list containers of kata-runtime run, and the host's other pods",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "show containers that have ended, too"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only names"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			storeFlag(),
		},
		Action: psAction,
	}
}

// listing is what ps shows.
type listing struct {
	Containers []containerLine `json:"containers"`
	// Pods are those of engines.
	Pods []podLine `json:"pods"`
}

type containerLine struct {
	Name    string     `json:"name"`
	Status  string     `json:"status"`
	Created time.Time  `json:"created"`
	Started *time.Time `json:"started,omitempty"`
	// Exited and ExitCode are absent until the container has ended.
	Exited   *time.Time     `json:"exited,omitempty"`
	ExitCode *int           `json:"exitCode,omitempty"`
	Image    string         `json:"image"`
	Command  []string       `json:"command"`
	Ports    []usernet.Port `json:"ports"`
	// Warnings are what went wrong beside the command.
	Warnings []string `json:"warnings,omitempty"`
}

type podLine struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Shim   int    `json:"shimPID"`
	VM     int    `json:"vmPID"`
}

// psAction lists the containers, and the other pods that run in virtual machines
// here.
func psAction(_ context.Context, c *cli.Command) error {
	if c.Bool("quiet") && c.Bool("json") {
		return usage(c, "--quiet writes names, one a line: leave out --json")
	}
	m, err := manager(c)
	if err != nil {
		return exitWith(0, err)
	}
	l, err := list(m, c.Bool("all"))
	if err != nil {
		return exitWith(0, err)
	}
	out := c.Root().Writer
	switch {
	case c.Bool("quiet"):
		for _, line := range l.Containers {
			fmt.Fprintln(out, line.Name)
		}
	case c.Bool("json"):
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(l)
	default:
		err = l.write(out)
	}
	return exitWith(0, err)
}

// list returns the containers that run, or all, and the engines' pods.
func list(m *container.Manager, all bool) (listing, error) {
	l := listing{Containers: []containerLine{}, Pods: []podLine{}}
	records, err := m.List()
	if err != nil {
		return l, err
	}
	for _, r := range records {
		if all || r.Exited == nil {
			l.Containers = append(l.Containers, lineOf(r))
		}
	}
	pods, err := m.OtherPods()
	for _, p := range pods {
		state := "running"
		if !p.Alive {
			state = "dead"
		}
		l.Pods = append(l.Pods, podLine{ID: p.ID, Status: state, Shim: p.Shim, VM: p.VM})
	}
	return l, err
}

func lineOf(r *container.Record) containerLine {
	line := containerLine{
		Name: r.Name, Status: r.State(), Created: r.Created, Started: r.Started, Image: r.Image,
		Command: append([]string{}, r.Command...), Ports: append([]usernet.Port{}, r.Ports...),
		Warnings: r.Warnings,
	}
	if r.Exited != nil {
		line.Exited, line.ExitCode = &r.Exited.At, &r.Exited.Code
	}
	return line
}

// write writes a table of the containers, and one of the pods if there are any.
func (l listing) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATUS\tCREATED\tIMAGE\tCOMMAND\tPORTS")
	for _, c := range l.Containers {
		fmt.Fprintf(w, "%s\t%s\t%s ago\t%s\t%s\t%s\n", c.Name, c.Status, age(c.Created), visible(c.Image),
			short(visible(strings.Join(c.Command, " "))), ports(c.Ports))
	}
	header := "\nCONTAINERS WITH WARNINGS\tWARNING\n"
	for _, c := range l.Containers {
		for _, text := range c.Warnings {
			fmt.Fprintf(w, "%s%s\t%s\n", header, c.Name, visible(strings.ReplaceAll(text, "\n", "; ")))
			header = ""
		}
	}
	if len(l.Pods) > 0 {
		fmt.Fprintln(w, "\nPODS OF ENGINES\tSTATUS\tSHIM\tVM")
	}
	for _, p := range l.Pods {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", p.ID, p.Status, p.Shim, p.VM)
	}
	return w.Flush()
}

// age returns the time since then, in its largest unit.
func age(then time.Time) string {
	d := time.Since(then)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	}
	return fmt.Sprintf("%d seconds", int(d.Seconds()))
}

// visible returns text that may be an image's so that it controls no terminal: quoted,
// if it has other than printable characters.
func visible(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// short truncates a command to what fits into a line.
func short(text string) string {
	const most = 30
	if r := []rune(text); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return text
}

func ports(list []usernet.Port) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}
