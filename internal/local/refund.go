package local

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// refunding is the job of agents/refunds: look the order up that a customer names, and refund what they ask for, or all
// of it.
var refunding = job{"refunds", []string{orderTool, refundTool}, func(r agent.Request) agent.Reply { return refund(asked(r.Messages), answers(r.Messages)) }}

const (
	orderTool  = "orders_get"
	refundTool = "refunds_create"
)

var (
	orderNumber = regexp.MustCompile(`(?i)order\s+(?:no\.?\s*)?(\d+)`)
	wantedBack  = regexp.MustCompile(`(?i)refund\s+(\d+(?:\.\d+)?)`)
)

func refund(message string, all []answer) agent.Reply {
	number := orderNumber.FindStringSubmatch(message)
	if number == nil {
		return agent.Reply{Text: Hello + " I look for \"order\" and its number in what you say, and there is none."}
	}
	order, looked := last(all, orderTool)
	if !looked {
		return call(Hello+" I will look order "+number[1]+" up.", orderTool, map[string]string{"order": number[1]})
	}
	var found struct {
		Item string      `json:"item"`
		Paid json.Number `json:"paid"`
	}
	if order.failed || json.Unmarshal([]byte(order.content), &found) != nil {
		return agent.Reply{Text: "I could not look the order up: " + firstLine(order.content)}
	}
	paid, tried := last(all, refundTool)
	switch {
	case !tried:
		return call("", refundTool, map[string]any{"order": number[1], "amount": owed(message, found.Paid), "reason": firstLine(message)})
	case paid.failed:
		return agent.Reply{Text: "I am sorry: the refund for your " + strings.ToLower(found.Item) + " was not made. " + firstLine(paid.content)}
	default:
		return agent.Reply{Text: "Your refund is on its way: " + paid.content}
	}
}

// owed is what the customer asks for by "refund 20", where that is no more than they have paid, and else all of it.
func owed(message string, paid json.Number) json.Number {
	m := wantedBack.FindStringSubmatch(message)
	if m == nil {
		return paid
	}
	want, _ := new(big.Rat).SetString(m[1])
	all, ok := new(big.Rat).SetString(paid.String())
	if !ok || want.Cmp(all) > 0 {
		return paid
	}
	return json.Number(m[1])
}
