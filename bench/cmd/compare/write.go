package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ringwise/ringwise/bench/peers"
	"github.com/ringwise/ringwise/bench/report"
)

// write makes RESULTS.md and charts/ in dir.
func (r *run) write(dir string, lines []string) error {
	var b strings.Builder
	command := "go run ./cmd/compare"
	if !r.full {
		command += " -quick"
	}
	fmt.Fprintf(&b, `# Results

Written by `+"`%s`"+` in this folder; do not edit, run it. [README.md](README.md) says how it measures.

- %s, %d of %d cores, %s, %s/%s, load average before: %s
- %s, %d rounds, slices of %v, took %.0f s; figures are medians, with quartiles in brackets
- A peer that is faster stands under *Peers ahead*. Nothing is subtracted from any figure.
`, command, cpu(), runtime.GOMAXPROCS(0), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, loadBefore,
		r.started.UTC().Format("2006-01-02"), r.rounds, r.slice, time.Since(r.started).Seconds())

	fmt.Fprintf(&b, "\n## Targets\n`targets.json` against this run: ours, the best peer, how many times faster we are, the target.\n\n```text\n%s\n```\n", strings.Join(lines, "\n"))
	b.WriteString("\n## Peers ahead\n")
	if len(r.ahead) == 0 {
		b.WriteString("None in this run.\n")
	} else {
		fmt.Fprintf(&b, "```text\n%s\n```\n", strings.Join(r.ahead, "\n"))
	}
	b.WriteString(r.page.String())

	b.WriteString("\n## Peers\n\n")
	mods := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			mods[d.Path] = d.Version
		}
	}
	mods["github.com/ringwise/ringwise"] = "this repository"
	t := &report.Table{Head: []string{"peer", "module", "version", "at its defaults"}}
	for _, p := range peers.All() {
		t.Row(p.Name, p.Module, mods[p.Module], p.Default)
	}
	for _, p := range peers.Pickers {
		t.Row(p.Name, p.Module, mods[p.Module], "goes by "+p.Reads)
	}
	b.WriteString(t.String())
	b.WriteString("\nAsked for and not here:\n\n")
	for _, m := range peers.Absent {
		fmt.Fprintf(&b, "- **%s**: %s\n", m.Name, m.Reason)
	}
	if err := os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "charts"), 0o755); err != nil {
		return err
	}
	for name, svg := range r.charts {
		if err := os.WriteFile(filepath.Join(dir, "charts", name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// loadBefore is read as the program starts, before it makes a load itself.
var loadBefore = load()

// load is the machine's load average, which says how far to trust a run.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// cpu is the processor's name.
func cpu() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Join(strings.Fields(strings.TrimLeft(name, "\t :")), " ")
		}
	}
	return "unknown processor"
}
