package keyspec

import "github.com/zeebo/xxh3"

// Parts are what a key says about itself. Its texts are parts of the key or of
// the buffer that the call was given, never copies.
type Parts[T string | []byte] struct {
	// Text is the key as it is hashed: without prefix, folded.
	Text T
	// Tenant, Entity and ID are empty where the pattern has no such field or
	// the key none. ID is all of Text if Matched is false.
	Tenant, Entity, ID T
	// Hash is XXH3_64bits of Text with the Spec's seed, and 1 in place of 0: for
	// seed 0, no prefix and no folding the one of ringwise.HashOf.
	Hash uint64
	// Slot is the low bits of Hash: in [0, Options.Slots).
	Slot uint32
	// Matched: the key had at least as many fields as the pattern.
	Matched bool
}

// Key is the Parts of a key held as a string.
type Key = Parts[string]

// Fingerprint is one number for (tenant, entity), the same in every process:
// XXH3_64bits of the entity, seeded with XXH3_64bits of the tenant, and 1 in
// place of 0. The Spec's seed has no part in it, since workers report counts by
// fingerprint. Two lengths cannot be confused: ("a", "bc") is not ("ab", "c").
func (k Parts[T]) Fingerprint() uint64 {
	switch k := any(k).(type) {
	case Parts[string]:
		return max(xxh3.HashStringSeed(k.Entity, xxh3.HashString(k.Tenant)), 1)
	case Parts[[]byte]:
		return max(xxh3.HashSeed(k.Entity, xxh3.Hash(k.Tenant)), 1)
	}
	return 0
}

// Parser reads keys of any shape. It must be safe for concurrent use and should
// not allocate: it runs once a pick. An error means that nothing is known of
// the key but its text. A *Spec is one.
type Parser interface {
	Parse(key string) (Key, error)
}

// ParserFunc makes a Parser of a function.
type ParserFunc func(key string) (Key, error)

// Parse calls f.
func (f ParserFunc) Parse(key string) (Key, error) { return f(key) }
