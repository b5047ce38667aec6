package report

import (
	"fmt"
	"strings"
)

// Table is a table in Markdown.
type Table struct {
	Head []string
	Rows [][]string
}

// Row adds one.
func (t *Table) Row(cells ...string) { t.Rows = append(t.Rows, cells) }

// String is the table. Rows that are too short are filled up.
func (t *Table) String() string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteByte('|')
		for i := range t.Head {
			cell := ""
			if i < len(cells) {
				cell = strings.ReplaceAll(cells[i], "|", "\\|")
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	line(t.Head)
	b.WriteString("|" + strings.Repeat("---|", len(t.Head)) + "\n")
	for _, r := range t.Rows {
		line(r)
	}
	return b.String()
}
