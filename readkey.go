package ringwise

import "github.com/ringwise/ringwise/keyspec"

// readKey reads the request's key, as far as the router has been told how, and
// gives its place on the ring, zero where there is none.
func (r *Router) readKey(v *View, q *Request) (h KeyHash) {
	h = r.placeOf(v, q)
	if v.key.kind == 0 && v.req.Tenant != "" {
		v.key.kind = KindOf(v.req.Tenant, "")
	}
	if r.hot != nil && h != 0 {
		v.key.heat, v.key.heated = r.hot.Heat(r.unix+v.now, uint64(h)), true
	}
	return h
}

func (r *Router) placeOf(v *View, q *Request) KeyHash {
	switch {
	case r.parser == nil || q.Hash != 0 || q.Key == "" && len(q.KeyBytes) == 0:
		return q.hash(r.hub.seed)
	case q.Key != "":
		return r.placeKey(v, q.Key)
	}
	return r.placeBytes(v, q.KeyBytes)
}

// placed is the key's place and tenant, as the parser reads them where there is
// one: that it is asked again by prepare is the price of a canary.
func (r *Router) placed(q *Request, sn *snapshot, now int64) (KeyHash, string) {
	if r.parser == nil {
		return q.hash(r.hub.seed), q.Tenant
	}
	v := viewPool.Get().(*View)
	defer v.release()
	v.begin(sn, q, now)
	h := r.placeOf(v, q)
	return h, v.req.Tenant
}

func (r *Router) placeKey(v *View, key string) KeyHash {
	k, ok := isolated(r, func() (keyspec.Key, error) { return r.parser.Parse(key) })
	if !ok {
		return hashOfSeeded(key, r.hub.seed)
	}
	v.key.entity, v.key.slot, v.key.parsed = k.Entity, k.Slot, true
	if v.req.Tenant == "" {
		v.req.Tenant = k.Tenant
	}
	if k.Tenant != "" || k.Entity != "" {
		v.key.kind = KeyHash(k.Fingerprint())
	}
	if k.Text == "" {
		return placedHash(k.Hash, key, r.hub.seed)
	}
	if r.hub.seed != 0 {
		v.plainHash = HashOf(k.Text)
	}
	return hashOfSeeded(k.Text, r.hub.seed)
}

// placedHash is a parser's own hash, for one that gives no text.
func placedHash(hash uint64, key string, seed uint64) KeyHash {
	if hash == 0 {
		return hashOfSeeded(key, seed)
	}
	return KeyHash(hash).seeded(seed)
}

// bytesParser is what keyspec.Spec has beside Parse.
type bytesParser interface {
	ParseBytes(buf, key []byte) (keyspec.Parts[[]byte], error)
}

func (r *Router) placeBytes(v *View, key []byte) KeyHash {
	p, can := r.parser.(bytesParser)
	if !can {
		return r.placeKey(v, string(key))
	}
	k, ok := isolated(r, func() (keyspec.Parts[[]byte], error) { return p.ParseBytes(v.keyBuf[:0], key) })
	if !ok || len(k.Text) == 0 {
		return hashBytesSeeded(key, r.hub.seed)
	}
	v.key.slot, v.key.parsed = k.Slot, true
	if v.req.Tenant == "" && (r.quota != nil || v.sn.trial != nil) {
		v.req.Tenant = string(k.Tenant)
	}
	if len(k.Tenant) > 0 || len(k.Entity) > 0 {
		v.key.kind = KeyHash(k.Fingerprint())
	}
	if r.hub.seed != 0 {
		v.plainHash = HashBytes(k.Text)
	}
	return hashBytesSeeded(k.Text, r.hub.seed)
}

// isolated runs the caller's parser; false where it fails or panics, which is
// counted.
func isolated[T any](r *Router, parse func() (T, error)) (k T, ok bool) {
	defer func() {
		if recover() != nil {
			r.counters.plugPanics.Add(1)
			ok = false
		}
	}()
	k, err := parse()
	return k, err == nil
}
