package ringwise

// Relaxed names the rules that had to be given up to find a worker.
type Relaxed uint8

// In the order in which they are given up.
const (
	RelaxedPenalty Relaxed = 1 << iota
	RelaxedProbeOut
	RelaxedStale
	RelaxedRecovering
	RelaxedDraining
	RelaxedVersion
)

var relaxedNames = [...]string{"penalty", "probe-out", "stale", "recovering", "draining", "version"}

// String lists the rules, joined by commas; empty where none was given up.
func (r Relaxed) String() string {
	s := ""
	for i, name := range relaxedNames {
		if r>>i&1 != 0 {
			if s != "" {
				s += ","
			}
			s += name
		}
	}
	return s
}

// reason is why a candidate was cut; zero is not.
type reason uint8

const (
	kept reason = iota
	cutAbsent
	cutTried
	cutDown
	cutRole
	cutReadOnly
	cutVersion
	cutQuota
	cutStale
	cutRecovering
	cutDraining
	cutCooldown
	cutProbeOut
	cutProbes
	cutOverload
	cutThinned
	cutFilter // + index of the caller's filter
)

var reasonNames = [...]string{"", "is not in the topology", "was tried already", "is down",
	"has the wrong role", "is read-only", "is at an older version", "has no quota left for the tenant",
	"has a stale report", "is recovering", "is draining", "is in cooldown", "is out by failed probes", "has its probes out",
	"asked for no requests yet", "was thinned out by its penalty"}
