package main

import "testing"

func TestMoved_TellsNeedlessFromDue(t *testing.T) {
	before := []string{"a", "b", "c", "a"}
	after := []string{"b", "b", "a", "c"} // a left; c to a was not due
	if got, want := moved(before, after, "a"), (move{all: 4, moved: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := moved([]string{"b", "c"}, []string{"c", "c"}, "a"), (move{all: 2, moved: 1, needless: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
