package sim

import (
	"fmt"
	"strings"
)

// Policies returns the oracle first, then the peers.
func Policies() []Factory {
	return []Factory{
		{"oracle", "shortest expected delay with the true queues and speeds", false, newOracle},
		{"random", "", false, newRandom},
		{"roundrobin", "", false, newRoundRobin},
		{"primary", "plain consistent hashing", false, newPrimaryFirst},
		{"least-inflight", "least connections over all candidates", false, newLeastInFlight},
		{"p2c-inflight", "Envoy least_request_lb.cc; MongoDB server-selection.md", false, newP2CInFlight},
		{"p2c-peak-ewma", "Finagle PeakEwma.scala; linkerd2-proxy peak_ewma.rs", false, newP2CPeakEWMA},
		{"scan-peak-ewma", "brpc locality_aware_load_balancer.cpp (error cost)", false, newScanPeakEWMA},
		{"kratos", "go-kratos selector/p2c/p2c.go, selector/node/ewma/node.go", false, newKratos},
		{"gozero", "go-zero zrpc/internal/balancer/p2c/p2c.go", false, newGoZero},
		{"c3-local", "Suresh et al., C3, NSDI 2015, without the server's figures", false, newC3(false)},
		{"c3", "Suresh et al., C3, NSDI 2015; lalithsuresh/absim client.py", true, newC3(true)},
		{"ars", "Elasticsearch ResponseCollectorService.java, IndexShardRoutingTable.java", true, newARS},
		{"hot-cold", "Wydrowski et al., Prequal, NSDI 2024, on local signals", false, newHotCold},
		{"orca-wrr", "gRPC proposal A58", false, newOrcaWRR},
		{"snitch", "Cassandra DynamicEndpointSnitch.java", false, newSnitch},
		{"highest", "highest reported score first", false, newHighest},
		{"softmax-t1", "softmax on reported scores, T = 1", false, newSoftmax(1)},
		{"softmax-t5", "softmax on reported scores, T = 5", false, newSoftmax(5)},
		{"softmax-t20", "softmax on reported scores, T = 20", false, newSoftmax(20)},
		{"swrr-10s", "nginx smooth weighted round robin, weights from reports every 10 s", false, newSWRR},
	}
}

// PolicyByName finds policies among some: names by comma, or "all".
func PolicyByName(all []Factory, names string) ([]Factory, error) {
	if names == "all" {
		return all, nil
	}
	var out []Factory
	var unknown, have []string
	for _, f := range all {
		have = append(have, f.Name)
	}
	for n := range strings.SplitSeq(names, ",") {
		n = strings.TrimSpace(n)
		found := false
		for _, f := range all {
			if f.Name == n {
				out = append(out, f)
				found = true
			}
		}
		if !found {
			unknown = append(unknown, n)
		}
	}
	if unknown != nil {
		return nil, fmt.Errorf("sim: no policy %s; there are %s and all", strings.Join(unknown, ", "), strings.Join(have, " "))
	}
	return out, nil
}
