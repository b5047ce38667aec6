// Torture gives forty hostile inputs to ringwise and to the existing
// libraries, each in a process of its own with a limit of time and memory, and
// writes TORTURE.md.
//
//	go run ./cmd/torture                    # all of it, under 2 min
//	go run ./cmd/torture -only report-nan   # one input, on standard output
//	go run ./cmd/torture -lib ringwise      # one library
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringwise/ringwise/bench/report"
	"github.com/ringwise/ringwise/bench/torture"
)

func main() {
	torture.Child()
	only := flag.String("only", "", "only the input of this name")
	lib := flag.String("lib", "", "only the library of this name")
	limit := flag.Duration("limit", 12*time.Second, "time for one input")
	total := flag.Duration("total", 2*time.Minute, "time for all; what is not done by then is a hang")
	out := flag.String("out", ".", "folder for TORTURE.md")
	strict := flag.Bool("strict", false, "with -lib or -only: exit status 1 unless all is ok or n/a")
	flag.Parse()
	if err := run(*only, *lib, *limit, *total, *out, *strict); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

type cell struct{ input, lib int }

func run(only, lib string, limit, total time.Duration, out string, strict bool) error {
	inputs := slices.DeleteFunc(slices.Clone(torture.Inputs), func(i torture.Input) bool { return only != "" && i.Name != only })
	libs := slices.DeleteFunc(torture.Libraries(), func(l string) bool { return lib != "" && l != lib })
	if len(inputs) == 0 || len(libs) == 0 {
		return fmt.Errorf("no input %q or no library %q", only, lib)
	}
	ctx, cancel := context.WithTimeout(context.Background(), total)
	defer cancel()
	start := time.Now()
	got := map[cell]torture.Verdict{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan cell)
	// Most of the time goes into waiting for those that hang or sleep.
	for range 2 * runtime.NumCPU() {
		wg.Go(func() {
			for c := range work {
				v := torture.Run(ctx, libs[c.lib], inputs[c.input].Name, limit)
				mu.Lock()
				got[c] = v
				mu.Unlock()
			}
		})
	}
	for i := range inputs {
		for l := range libs {
			work <- cell{i, l}
		}
	}
	close(work)
	wg.Wait()

	t := &report.Table{Head: append([]string{"input"}, libs...)}
	var notes strings.Builder
	counts := make([]map[string]int, len(libs))
	for i, in := range inputs {
		row := []string{fmt.Sprintf("`%s` %s", in.Name, in.What)}
		for l, name := range libs {
			v := got[cell{i, l}]
			word := v.Word
			if word != "ok" && word != "n/a" {
				word = "**" + word + "**"
				fmt.Fprintf(&notes, "- %s, `%s`: %s, %.120s\n", name, in.Name, v.Word, v.Note)
			}
			row = append(row, word)
			if counts[l] == nil {
				counts[l] = map[string]int{}
			}
			counts[l][v.Word]++
		}
		t.Row(row...)
	}
	for l, name := range libs {
		fmt.Printf("%-28s", name)
		for _, word := range []string{"ok", "wrong", "panic", "hang", "memory", "n/a"} {
			fmt.Printf(" %s %2d", word, counts[l][word])
		}
		fmt.Println()
	}
	fmt.Printf("%d inputs, %d libraries, %.0f s\n", len(inputs), len(libs), time.Since(start).Seconds())
	if only != "" || lib != "" {
		fmt.Print(notes.String())
		if strict && notes.Len() > 0 {
			return fmt.Errorf("not all of it is ok")
		}
		return nil
	}
	sum := &report.Table{Head: []string{"", "ok", "wrong", "panic", "hang", "memory", "n/a"}}
	for l, name := range libs {
		c := counts[l]
		sum.Row(name, fmt.Sprint(c["ok"]), fmt.Sprint(c["wrong"]), fmt.Sprint(c["panic"]), fmt.Sprint(c["hang"]), fmt.Sprint(c["memory"]), fmt.Sprint(c["n/a"]))
	}
	page := fmt.Sprintf(`# Torture table

Written by `+"`go run ./cmd/torture`"+`; do not edit, run it. Forty hostile inputs, each library in a process of its own with %v and 1 GB.
ok: it refused, or did what it should. wrong: an answer that harms, see below. n/a: it has no such input, which is no merit and no fault. The libraries
do other things than ringwise and some say in their documentation that the caller must not do this; the table tells what happens if he does.

%s
%s
## What was wrong
%s`, limit, sum, t, notes.String())
	return os.WriteFile(filepath.Join(out, "TORTURE.md"), []byte(page), 0o644)
}
