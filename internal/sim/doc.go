// Package sim is a deterministic discrete-event simulator of many clients
// that choose among the workers of a key, each by a [Policy] of its own.
//
// It answers one question: how much latency does a choice cost? Arrivals are
// open loop, so a slow choice cannot slow the load that measures it, and one
// seed gives the same requests (time, client, key, service time) to each
// policy, so two policies differ by their choices alone. The limit is the
// oracle, which sees the true queues and speeds.
//
// A [Scenario] is data: the fleet, the load, and a list of disturbances.
// [Run] plays one scenario with one policy and one seed, on the calling
// goroutine, and returns a [Result]; it draws on no clock and no global state,
// so runs may go side by side and give the same bytes in any order.
//
// The engine is checked against closed forms (Erlang C, Pollaczek-Khinchine)
// and the peers against hand-worked cases. The policy "ringwise" holds no
// formula: it drives the library's own calls.
package sim
