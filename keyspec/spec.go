package keyspec

import "github.com/zeebo/xxh3"

// Spec is a compiled pattern of keys. It never changes, so it is safe for
// concurrent use. New and Default make one.
type Spec struct {
	prefix string // folded if fold
	order  []field
	usual  bool // order is tenant, entity, id: cut with no loop, a third cheaper
	fold   bool
	sep    byte
	maxLen int
	mask   uint64
	seed   uint64
}

var _ Parser = (*Spec)(nil)

// Parse reads a key. The texts of the result are parts of key. It allocates
// (once) only if Fold is set and key has an upper-case letter past its prefix:
// use ParseInto there. The only error is ErrTooLong, with zero Parts.
func (s *Spec) Parse(key string) (k Key, err error) {
	if len(key) > s.maxLen {
		return k, ErrTooLong
	}
	text := key[prefixLen(s, key):]
	if s.fold && hasUpper(text) {
		text = string(appendFolded(make([]byte, 0, len(text)), text))
	}
	split(s, text, &k)
	k.Hash = max(xxh3.HashStringSeed(text, s.seed), 1)
	k.Slot = s.Slot(k.Hash)
	return k, nil
}

// ParseInto is Parse with the texts of the result in buf, whatever it held,
// grown if its capacity is less than the length of key. They are good until buf
// is used again.
func (s *Spec) ParseInto(buf []byte, key string) (Parts[[]byte], error) {
	if len(key) > s.maxLen {
		return Parts[[]byte]{}, ErrTooLong
	}
	text := key[prefixLen(s, key):]
	if s.fold {
		buf = appendFolded(buf[:0], text)
	} else {
		buf = append(buf[:0], text...)
	}
	return s.parts(buf), nil
}

// ParseBytes is Parse of a key held as bytes. The texts of the result are parts
// of key or, where it has to fold, of buf as in ParseInto. key is not changed;
// buf must not overlap it.
func (s *Spec) ParseBytes(buf, key []byte) (Parts[[]byte], error) {
	if len(key) > s.maxLen {
		return Parts[[]byte]{}, ErrTooLong
	}
	text := key[prefixLen(s, key):]
	if s.fold && hasUpper(text) {
		text = appendFolded(buf[:0], text)
	}
	return s.parts(text), nil
}

// Slot is the shard slot of a hash: its low bits.
func (s *Spec) Slot(hash uint64) uint32 { return uint32(hash & s.mask) }

func (s *Spec) parts(text []byte) (k Parts[[]byte]) {
	split(s, text, &k)
	k.Hash = max(xxh3.HashSeed(text, s.seed), 1)
	k.Slot = s.Slot(k.Hash)
	return k
}

// prefixLen is how many bytes of key are prefix: all of it or none.
func prefixLen[T string | []byte](s *Spec, key T) int {
	n := len(s.prefix)
	if n == 0 || len(key) < n {
		return 0
	}
	for i := range n {
		c := key[i]
		if s.fold {
			c = lower(c)
		}
		if c != s.prefix[i] {
			return 0
		}
	}
	return n
}

// split cuts text at its separators. It fills k, zero before, in place: a
// result of 10 words that is passed on costs as much as finding the cuts.
func split[T string | []byte](s *Spec, text T, k *Parts[T]) {
	k.Text, k.ID = text, text
	if s.usual {
		a := index(text, s.sep, 0)
		b := index(text, s.sep, a+1)
		if b < len(text) {
			k.Tenant, k.Entity, k.ID, k.Matched = text[:a], text[a+1:b], text[b+1:], true
		}
		return
	}
	var cut [maxFields]int
	from := 0
	for i := range len(s.order) - 1 {
		cut[i] = index(text, s.sep, from)
		from = cut[i] + 1
	}
	if from > len(text) {
		return
	}
	k.ID, k.Matched = text[:0], true
	cut[len(s.order)-1] = len(text)
	from = 0
	for i, f := range s.order {
		part := text[from:cut[i]]
		from = cut[i] + 1
		switch f {
		case fieldTenant:
			k.Tenant = part
		case fieldEntity:
			k.Entity = part
		case fieldID:
			k.ID = part
		}
	}
}

// index is where c stands in text from from on, at least len(text) if nowhere.
// The parts of a key are short: a loop beats the call of IndexByte.
func index[T string | []byte](text T, c byte, from int) int {
	for ; from < len(text); from++ {
		if text[from] == c {
			break
		}
	}
	return from
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func hasUpper[T string | []byte](text T) bool {
	for i := range len(text) {
		if c := text[i]; 'A' <= c && c <= 'Z' {
			return true
		}
	}
	return false
}

func appendFolded[T string | []byte](dst []byte, text T) []byte {
	n := len(dst)
	dst = append(dst, text...)
	for i, c := range dst[n:] {
		dst[n+i] = lower(c)
	}
	return dst
}
