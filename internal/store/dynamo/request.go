package dynamo

// attribute is a value as DynamoDB writes it in JSON, of the types that are stored here. A value of another type is none of them.
type attribute struct {
	S *string    `json:",omitempty"`
	N *string    `json:",omitempty"`
	B []byte     `json:",omitempty"`
	M attributes `json:",omitempty"`
}

type attributes map[string]attribute

// str is a string as it is stored.
func str(s string) attribute { return attribute{S: &s} }

// input is what an operation is asked with, alone or as part of a transaction. What is empty is not sent: DynamoDB refuses empty maps.
type input struct {
	TableName                 string
	Key                       attributes        `json:",omitempty"`
	Item                      attributes        `json:",omitempty"`
	UpdateExpression          string            `json:",omitempty"`
	ConditionExpression       string            `json:",omitempty"`
	KeyConditionExpression    string            `json:",omitempty"`
	ExpressionAttributeNames  map[string]string `json:",omitempty"`
	ExpressionAttributeValues attributes        `json:",omitempty"`
	ConsistentRead            *bool             `json:",omitempty"`

	// of a Query
	IndexName         string     `json:",omitempty"`
	ScanIndexForward  *bool      `json:",omitempty"`
	ExclusiveStartKey attributes `json:",omitempty"`
	Limit             int        `json:",omitempty"`
}

// transaction is several operations that are done together or not at all.
type transaction struct {
	ClientRequestToken string `json:",omitempty"`
	TransactItems      []part
}

// part is one operation of a transaction; one of the three is there.
type part struct {
	Put            *input `json:",omitempty"`
	Update         *input `json:",omitempty"`
	ConditionCheck *input `json:",omitempty"`
}
