// Package otlp sends spans to a collector by OTLP over HTTP (OpenTelemetry Protocol 1.x), as binary protobuf or as JSON.
//
// The exporter of the OpenTelemetry project links protobuf reflection and gRPC, which doubles a function's binary; one request of one
// message type is all that is needed here. See docs/adr/0013-tracing.md.
package otlp
