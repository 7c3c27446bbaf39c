// Package observe records what runs do: spans and metrics of OpenTelemetry, metrics of CloudWatch, and logs without
// content. Tracer and the Meter functions decorate the ports of package runtime; Telemetry and EMF send what they record.
package observe
