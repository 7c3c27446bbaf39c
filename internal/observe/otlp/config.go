package otlp

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config is where spans are sent and how. URL is required.
type Config struct {
	URL     string // complete, with the path
	Headers map[string]string
	JSON    bool          // application/json; else application/x-protobuf, which every collector takes
	Gzip    bool          // compress requests
	Timeout time.Duration // of one export, tries included; 0 = ten seconds
	Client  *http.Client  // nil = one of its own
}

// defaultTimeout is the specification's.
const defaultTimeout = 10 * time.Second

// tracesPath stands behind an endpoint that is meant for every signal.
const tracesPath = "/v1/traces"

// FromEnv reads OTEL_EXPORTER_OTLP_TRACES_*, and OTEL_EXPORTER_OTLP_* where those are not set: ENDPOINT, HEADERS, PROTOCOL, COMPRESSION,
// TIMEOUT (milliseconds). ok is false where no endpoint is set. An error names the variable and what it wants, never its value where that may
// be a secret.
func FromEnv(getenv func(string) string) (c Config, ok bool, err error) {
	e := env(getenv)
	if c.URL, err = e.endpoint(); err != nil || c.URL == "" {
		return Config{}, false, err
	}
	name, v := e.get("HEADERS")
	if c.Headers, err = headers(v); err != nil {
		return Config{}, false, fmt.Errorf("%s: %w", name, err)
	}
	switch name, v := e.get("PROTOCOL"); v {
	case "", "http/protobuf":
	case "http/json":
		c.JSON = true
	default:
		return Config{}, false, fmt.Errorf("%s: got %q, want http/protobuf or http/json", name, v)
	}
	switch name, v := e.get("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		c.Gzip = true
	default:
		return Config{}, false, fmt.Errorf("%s: got %q, want gzip or none", name, v)
	}
	name, v = e.get("TIMEOUT")
	if v == "" {
		return c, true, nil
	}
	ms, err := strconv.ParseInt(v, 10, 32)
	if err != nil || ms <= 0 {
		return Config{}, false, fmt.Errorf("%s: got %q, want milliseconds above 0", name, v)
	}
	c.Timeout = time.Duration(ms) * time.Millisecond
	return c, true, nil
}

type env func(string) string

// get is a setting and the name of the variable it came from.
func (e env) get(setting string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + setting
	if v := strings.TrimSpace(e(name)); v != "" {
		return name, v
	}
	name = "OTEL_EXPORTER_OTLP_" + setting
	return name, strings.TrimSpace(e(name))
}

func (e env) endpoint() (string, error) {
	name, v := e.get("ENDPOINT")
	if v == "" {
		return "", nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s: want http://HOST or https://HOST", name)
	}
	if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		u.Path = strings.TrimSuffix(u.Path, "/") + tracesPath
	}
	return u.String(), nil
}

// headers reads k=v pairs between commas, their values escaped as in URLs.
func headers(list string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(v))
		if k = strings.TrimSpace(k); !ok || k == "" || err != nil || strings.ContainsAny(k+value, "\r\n") {
			return nil, fmt.Errorf("want NAME=VALUE between commas, values escaped as in URLs")
		}
		out[k] = value
	}
	return out, nil
}
