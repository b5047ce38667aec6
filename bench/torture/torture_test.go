package torture

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The test binary is the child as well, with libraries that do what real ones
// did.
func TestMain(m *testing.M) {
	libraries = append(libraries,
		library{name: "test/panics", build: func(setup) (*system, error) { panic("at build") }},
		library{name: "test/dies", build: func(setup) (*system, error) {
			go func() { panic("elsewhere") }()
			time.Sleep(time.Minute)
			return nil, nil
		}},
		library{name: "test/hangs", build: func(setup) (*system, error) {
			for {
				keep++
			}
		}},
		library{name: "test/eats", build: func(setup) (*system, error) {
			for {
				eaten = append(eaten, make([]byte, 1<<24))
			}
		}},
		library{name: "test/wrong", build: func(setup) (*system, error) {
			return &system{one: func(string) (string, error) { return "me", nil }}, nil
		}},
		library{name: "test/refuses", build: func(setup) (*system, error) { return nil, errors.New("no") }},
		library{name: "test/exits", build: func(setup) (*system, error) { os.Exit(1); return nil, nil }},
	)
	Child()
	os.Exit(m.Run())
}

var (
	keep  int
	eaten [][]byte
)

func TestRun_TellsEndsApart(t *testing.T) {
	for name, want := range map[string]string{
		"test/panics": "panic at build", "test/dies": "panic panic: elsewhere", "test/hangs": "hang no answer in 300ms", "test/eats": "memory over a gigabyte",
		"test/wrong": `wrong names "me"`, "test/refuses": "ok ", "test/exits": "panic exit status 1", "test/unknown": "n/a no library or input of that name",
	} {
		t.Run(strings.TrimPrefix(name, "test/"), func(t *testing.T) {
			t.Parallel()
			limit := time.Minute
			if name == "test/hangs" {
				limit = 300 * time.Millisecond
			}
			v := Run(t.Context(), name, "no-workers", limit)
			if got := fmt.Sprintf("%s %s", v.Word, v.Note); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestInputs_Forty(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range Inputs {
		if i.Name == "" || i.What == "" || seen[i.Name] {
			t.Errorf("%q is bad or double", i.Name)
		}
		seen[i.Name] = true
	}
	if len(seen) != 40 {
		t.Errorf("there are %d", len(seen))
	}
}

// What ringwise claims: nothing but ok, or an input it has not. The slow ones
// are left to the command.
func TestRingwise_IsOkEverywhere(t *testing.T) {
	for _, i := range Inputs {
		l, _ := find("ringwise", "")
		if !i.takes(*l) {
			continue
		}
		t.Run(i.Name, func(t *testing.T) {
			if err := i.run(*l); err != nil {
				t.Error(err)
			}
		})
	}
}
