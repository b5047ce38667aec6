//go:build !light

package peers

import (
	"github.com/zeromicro/go-zero/core/logx"
	_ "github.com/zeromicro/go-zero/zrpc" // registers p2c_ewma with gRPC
)

// goZero brings four fifths of all packages here: its p2c is internal to zrpc,
// which needs Kubernetes, etcd and telemetry. Tests and linters may leave it
// out by -tags light; no comparison should.
var goZero = []PickerPeer{
	{
		Name: "go-zero p2c", Module: "github.com/zeromicro/go-zero", LoadAware: true, Reads: "latency, in flight, success",
		Build: grpcPicker("p2c_ewma", "", nil),
		Max:   1000, Why: "gRPC's base balancer makes a new picker for each connection: minutes",
	},
}

// It logs a line a minute.
func init() { logx.DisableStat() }
