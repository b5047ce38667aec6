package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/metrics"
	"strings"
	"time"
)

// Verdict is what a library made of an input: ok, wrong, panic, hang, memory,
// or n/a where it has no such input.
type Verdict struct {
	Word string
	Note string
}

const (
	childEnv  = "RINGWISE_TORTURE_CHILD"
	mark      = "VERDICT "
	maxMemory = 1 << 30
	exitFull  = 3
)

// Child runs one input and ends the process, if this process was started by
// Run for that; else it does nothing. It must be the first thing in main.
func Child() {
	what := os.Getenv(childEnv)
	if what == "" {
		return
	}
	name, input, _ := strings.Cut(what, "|")
	go watchMemory()
	defer func() {
		if e := recover(); e != nil {
			say(Verdict{"panic", fmt.Sprint(e)})
		}
	}()
	l, i := find(name, input)
	if l == nil || i == nil {
		say(Verdict{"panic", "no library or input of that name"})
	}
	if err := i.run(*l); err != nil {
		say(Verdict{"wrong", err.Error()})
	}
	say(Verdict{Word: "ok"})
}

func find(name, input string) (l *library, in *Input) {
	for i := range libraries {
		if libraries[i].name == name {
			l = &libraries[i]
		}
	}
	for i := range Inputs {
		if Inputs[i].Name == input {
			in = &Inputs[i]
		}
	}
	return l, in
}

func say(v Verdict) {
	fmt.Println(mark + v.Word + " " + strings.ReplaceAll(v.Note, "\n", " "))
	os.Exit(0)
}

// watchMemory ends the process when it has taken a gigabyte.
func watchMemory() {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	for ; ; time.Sleep(2 * time.Millisecond) {
		if metrics.Read(s); s[0].Value.Uint64() > maxMemory {
			os.Exit(exitFull)
		}
	}
}

// Libraries are the names of those under test.
func Libraries() []string {
	names := make([]string, len(libraries))
	for i, l := range libraries {
		names[i] = l.name
	}
	return names
}

// Run gives one library one input, in a process of its own that has so much
// time and a gigabyte.
func Run(ctx context.Context, name, input string, limit time.Duration) Verdict {
	l, i := find(name, input)
	if l == nil || i == nil {
		return Verdict{"n/a", "no library or input of that name"}
	}
	if !i.takes(*l) {
		return Verdict{Word: "n/a"}
	}
	exe, err := os.Executable()
	if err != nil {
		return Verdict{"n/a", err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+name+"|"+input, "GOTRACEBACK=single")
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	return judge(out.String(), problem.String(), err, ctx.Err() != nil, limit)
}

// judge reads what is left of a child.
func judge(out, problem string, err error, late bool, limit time.Duration) Verdict {
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, mark); ok {
			word, note, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return Verdict{word, note}
		}
	}
	if late {
		return Verdict{"hang", fmt.Sprintf("no answer in %v", limit)}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitFull {
		return Verdict{"memory", "over a gigabyte"}
	}
	note := "ended without a word"
	for line := range strings.Lines(problem) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			note = strings.TrimSpace(line)
			break
		}
	}
	if err != nil && note == "ended without a word" {
		note = err.Error()
	}
	return Verdict{"panic", note}
}
