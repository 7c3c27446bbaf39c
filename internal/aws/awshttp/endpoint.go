package awshttp

import "strings"

// partitions are AWS' clouds by how their regions' names begin, with what hosts' names end in, and those that answer on IPv6, too.
var partitions = []struct{ regions, suffix, dualStack string }{
	{"cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"},
	{"eusc-", "amazonaws.eu", "api.amazonwebservices.eu"},
	{"us-iso-", "c2s.ic.gov", "api.aws.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov", "api.aws.scloud"},
	{"us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"},
	{"eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"},
	{"", "amazonaws.com", "api.aws"},
}

// Suffix is what the names of hosts in a region end in.
func Suffix(region string, dualStack bool) string {
	for _, p := range partitions {
		if !strings.HasPrefix(region, p.regions) {
			continue
		}
		if dualStack {
			return p.dualStack
		}
		return p.suffix
	}
	return ""
}

// Endpoint is where a service whose hosts' names begin so, as "events", is in a region. Services have exceptions of their own, which are theirs
// to know.
func Endpoint(host, region string, fips, dualStack bool) string {
	if fips {
		host += "-fips"
	}
	return "https://" + host + "." + region + "." + Suffix(region, dualStack)
}
