package keyspec

import (
	"errors"
	"slices"
	"strings"
)

// Options say how keys are spelled. The zero value stands for keys like
// "acme:order:17", 512 slots and no folding.
type Options struct {
	// Prefix is taken off a key that has it; a key without it is read as it is.
	// At most MaxLen bytes. Default none.
	Prefix string
	// Pattern is the order of the fields: the words tenant, entity, id and _
	// (a field to skip), each but _ at most once, 1 to 8 in all, with the same
	// separator between any two: one printable ASCII byte, no letter, digit or
	// _. The last field takes the rest of the key, further separators
	// included. Default "tenant:entity:id".
	Pattern string
	// Fold turns A-Z into a-z, in Prefix too, before anything is compared or
	// hashed. Other bytes stay as they are: folding all of Unicode changes
	// lengths, and a store compares bytes.
	Fold bool
	// Slots is the number of shard slots, a power of two in [1, 65536].
	// Default 512: slot = hash & 511.
	Slots int
	// MaxLen bounds the length of a key and with it the work done on one, in
	// [1, 65536] bytes. Default 4096.
	MaxLen int
	// Seed is that of the hash. Give the one of the router. 0 is that of
	// ringwise.HashOf. A seed that strangers do not know keeps them from
	// crafting keys that meet in one slot.
	Seed uint64
}

const (
	defaultPattern = "tenant:entity:id"
	defaultSlots   = 512
	defaultMaxLen  = 4096
	maxSlots       = 65536
	maxMaxLen      = 65536
	maxFields      = 8
)

// A field is where a part of the key goes.
type field uint8

const (
	fieldSkip field = iota
	fieldTenant
	fieldEntity
	fieldID
	fields
)

var fieldWords = [fields]string{fieldSkip: "_", fieldTenant: "tenant", fieldEntity: "entity", fieldID: "id"}

// New compiles options. Its error names every bad field (errors.Join of
// *ConfigError).
func New(o Options) (*Spec, error) {
	if o.Pattern == "" {
		o.Pattern = defaultPattern
	}
	if o.Slots == 0 {
		o.Slots = defaultSlots
	}
	if o.MaxLen == 0 {
		o.MaxLen = defaultMaxLen
	}
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &ConfigError{Field: field, Value: value, Want: want})
	}
	order, sep, want := parsePattern(o.Pattern)
	if want != "" {
		bad("Pattern", o.Pattern, want)
	}
	if o.Slots < 1 || o.Slots > maxSlots || o.Slots&(o.Slots-1) != 0 {
		bad("Slots", o.Slots, "a power of two in [1, 65536]")
	}
	if o.MaxLen < 1 || o.MaxLen > maxMaxLen {
		bad("MaxLen", o.MaxLen, "a number in [1, 65536]")
	} else if len(o.Prefix) > o.MaxLen {
		bad("Prefix", o.Prefix, "at most MaxLen bytes")
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	prefix := o.Prefix
	if o.Fold {
		prefix = string(appendFolded(nil, prefix))
	}
	return &Spec{
		prefix: prefix, fold: o.Fold, sep: sep, order: order,
		usual:  slices.Equal(order, []field{fieldTenant, fieldEntity, fieldID}),
		maxLen: o.MaxLen, mask: uint64(o.Slots - 1), seed: o.Seed,
	}, nil
}

// Default is the Spec of the zero Options: keys like "acme:order:17".
func Default() *Spec {
	s, err := New(Options{})
	if err != nil {
		panic(err) // no input can cause it
	}
	return s
}

// parsePattern gives the fields and their separator, or what is wanted instead.
func parsePattern(p string) (order []field, sep byte, want string) {
	const shape = "1 to 8 of the words tenant, entity, id and _ with one separator between them"
	if len(p) > 64 {
		return nil, 0, shape
	}
	words := []string{p}
	if i := strings.IndexFunc(p, func(r rune) bool { return r != '_' && !('a' <= r && r <= 'z') }); i >= 0 {
		sep = p[i]
		if sep <= ' ' || sep > '~' || '0' <= sep && sep <= '9' || 'A' <= sep && sep <= 'Z' {
			return nil, 0, "a separator that is one printable ASCII byte and no letter, digit, space or _"
		}
		words = strings.Split(p, string(sep))
	}
	if len(words) > maxFields {
		return nil, 0, shape
	}
	var seen [fields]bool
	for _, w := range words {
		f := field(slices.Index(fieldWords[:], w))
		if f >= fields {
			return nil, 0, shape
		}
		if seen[f] && f != fieldSkip {
			return nil, 0, "each of tenant, entity and id at most once"
		}
		seen[f] = true
		order = append(order, f)
	}
	if !seen[fieldTenant] && !seen[fieldEntity] && !seen[fieldID] {
		return nil, 0, "at least one of tenant, entity and id"
	}
	return order, sep, ""
}
