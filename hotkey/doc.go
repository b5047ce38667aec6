// Package hotkey finds the hottest keys of a stream in bounded memory: who they
// are, how often they were read and written in the last five minutes, and which
// kind of heat it is.
//
//	t, err := hotkey.New(hotkey.Options{})
//	t.Add(now, hash, key, write)        // each request
//	changes := t.Refresh(now, nil)      // each second or so
//	if t.Heat(now, hash).Sustained() …  // each request
//	for _, k := range t.Top(now, 10) …
//
// # Algorithm
//
// Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) in small sets of seven
// counters each, as a cache has ways: a key belongs to one set; if all seven
// are taken by others, it takes over the weakest and inherits its weight. So a
// key that has more than its set's share of the traffic is always there. Why
// this one:
//
//   - Its error is bounded for certain, not on average, and the bound is known
//     for each key: see Stat.Missed. HeavyKeeper (Gong et al., USENIX ATC 2018)
//     counts as well but only with high probability and cannot be merged; a
//     count-min sketch with conservative update over-counts, mostly the keys
//     that are not hot, and needs a heap beside it to know any key at all.
//   - It merges with the same guarantee (Agarwal et al., Mergeable Summaries,
//     PODS 2012), and by key, not by cell: two processes need neither the same
//     seed nor the same size.
//   - It survives decay: weights that all shrink by the same factor keep their
//     order (Cormode et al., Forward Decay, ICDE 2009).
//   - Sets instead of one heap make a count one atomic addition on two cache
//     lines, with no lock shared by all keys.
//
// Weight and count are two things here. The weight, which decides who stays,
// includes what was inherited and loses a tenth every 30 seconds. The counts,
// which are reported, are kept by lane and 30-second slot since the key came in,
// for ten slots, and are never too high: a key that is called hot was seen to be.
// (Two exceptions: a request that meets a replacement in the same instant may
// be credited to the key that came in; counts of AddN are estimates if n is.)
//
// # Time
//
// Nothing here reads a clock. now is in nanoseconds on a clock that does not
// jump. To merge across processes their zeros must agree to within a few
// seconds: use Unix time at start plus the monotonic time since. A now that
// steps back by less than the window counts into the newest slot; a larger step
// back starts the window anew, set by set.
//
// # Hashes and seeds
//
// A key is known by its 64-bit hash; two keys with one hash are one key. The
// hash must come from the same function, with the same seed, in all processes
// that merge, as those of one fleet's routers do. Options.Seed is another
// matter: it places keys in sets, is drawn at random for each Tracker, so that
// keys cannot be crafted to push a hot key out of its set, and need not be
// shared, since exports are by hash.
//
// # Exports
//
// Version 1. Everything is little-endian, nothing is padded, and the bytes of an
// export are the only ones that decode to it. Offset, size, field:
//
//	 0   4  "RWH" and the version, 1
//	 4   4  number of keys, at most 65536
//	 8   8  XXH3_64bits of all that follows
//	16   8  taken: Export's now, ns
//	24   8  tick, ns
//	32   8  source
//	40   8  floor: at most so many requests in the window of a key not listed,
//	        at most 2^48
//	48  80  requests of all keys by slot, newest (the one with taken in it) first
//	128     the keys, ascending by hash:
//	     8  hash, not 0
//	     8  at most so many requests in the window are not in the counts,
//	        at most 2^48
//	    40  reads by slot, newest first
//	    40  writes by slot, newest first
//	     2  length of the text, at most 1024; bit 15: the text was cut
//	        the text
package hotkey
