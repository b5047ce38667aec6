// Package keyspec reads what a key says about itself: tenant, entity type, id
// and shard slot. It strips a prefix, folds case if asked, and hashes what is
// left, so that two spellings of a key meet on one worker.
//
// A [Spec] is compiled once from [Options] and then safe for concurrent use.
// Three calls give the same answer and differ in where text may be written:
//
//	spec.Parse(key)            strings of key; allocates only where it folds
//	spec.ParseInto(buf, key)   bytes of the caller's buffer; never allocates if it is large enough
//	spec.ParseBytes(buf, key)  bytes of key, or of buf where it folds
//
// A key of another shape is no error, since a pick must not fail over it: its
// Matched is false, ID is all of it, Tenant and Entity are empty. Guessing
// would be worse: each odd key would be a tenant of its own, with a quota.
//
// Whoever has other keys brings a [Parser].
package keyspec
