package samtest

import (
	"strings"
)

// openRoutes are those that anybody may call, with what says in place of an authorizer who asks.
var openRoutes = map[string]string{
	"POST /v1/callbacks/{token}": "the token in the path says which call may be answered",
	"GET /":                      "a page that says how a request is opened, the same for everybody",
	"ANY /a/{link}":              "the link in the path says who opens which request",
	"POST /slack/interactions":   "Slack signs the body",
}

// api says which routes anybody may call, and where the gateway sets no limits or logs too much.
func api(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources("AWS::ApiGatewayV2::Route") {
		if strings.HasPrefix(r.Properties.Get("RouteKey").String(), "OPTIONS ") {
			found = append(found, r.want("AuthorizationType", "NONE")...)
			if r.Node.Get("Condition").String() != "UseCors" {
				found = append(found, r.problem(nil, "Condition: want UseCors: only browsers of other origins ask"))
			}
			continue
		}
		if openRoutes[r.Properties.Get("RouteKey").String()] != "" {
			found = append(found, r.want("AuthorizationType", "NONE")...)
			continue
		}
		found = append(found, r.want("AuthorizationType", "JWT or AWS_IAM", "AuthorizerId", "HttpApiAuthorizer or AWS::NoValue")...)
	}
	for _, r := range p.Resources("AWS::ApiGatewayV2::Api") {
		if _, choice := r.Properties.Get("CorsConfiguration").Call(); choice != nil && len(choice.Items) > 1 {
			allowed := choice.Items[1].Get("AllowMethods")
			if got := allowed.Short(); got != "[GET, POST, DELETE]" {
				found = append(found, r.problem(allowed, "AllowMethods: want [GET, POST, DELETE], those of the routes of a deployment, got %s", got))
			}
		}
	}
	for _, r := range p.Resources("AWS::ApiGatewayV2::Authorizer") {
		found = append(found, r.want("AuthorizerType", "JWT", "JwtConfiguration/Issuer", "JwtIssuer", "JwtConfiguration/Audience", "{Fn::Split: [,, JwtAudience]}", "IdentitySource", "[$request.header.Authorization]")...)
	}
	for _, r := range p.Resources("AWS::ApiGatewayV2::Integration") {
		found = append(found, r.want("PayloadFormatVersion", "2.0", "IntegrationType", "AWS_PROXY")...)
	}
	for _, r := range p.Resources("AWS::ApiGatewayV2::Stage") {
		found = append(found, r.want(
			"DefaultRouteSettings/ThrottlingRateLimit", "ApiRateLimit", "DefaultRouteSettings/ThrottlingBurstLimit", "ApiBurstLimit",
			"AccessLogSettings/DestinationArn", "HttpApiLogs.Arn",
		)...)
		format := r.Properties.Get("AccessLogSettings", "Format")
		for _, secret := range []string{"$context.path", "$context.routeKey", "$context.authorizer.claims", "$context.identity", "$context.authorizer.principalId"} {
			if strings.Contains(format.String(), secret) {
				found = append(found, r.problem(format, "Format: %s: who calls, and links, stay out of this log", secret))
			}
		}
	}
	return found
}
