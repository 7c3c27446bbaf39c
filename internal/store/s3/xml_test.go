package s3

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// These are what readPage and refusal want, as package encoding/xml reads them.
type (
	listXML struct {
		XMLName   xml.Name `xml:"ListBucketResult"`
		Truncated bool     `xml:"IsTruncated"`
		Next      string   `xml:"NextContinuationToken"`
		Prefixes  []string `xml:"CommonPrefixes>Prefix"`
	}
	errorXML struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
		Message string   `xml:"Message"`
	}
)

// documents are what S3 and others answer.
var documents = []string{
	`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message><Key>T/a/b</Key></Error>`,
	`<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Code>A</Code><Code>B &amp; &#67;&#x44; &lt;&gt;&quot;&apos;</Code><Message/></Error>`,
	`<s3:Error xmlns:s3="x"><s3:Code>A<!-- no > <Code> -->B<i>C</i>D</s3:Code><Message a='>' b="/">x` + "\r\n\ry" + `</Message ></s3:Error> <more>`,
	`<Error><Code><![CDATA[<&amp;]]></Code><Details><Code>X</Code></Details></Error>`,
	`<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>T/</Prefix><KeyCount>2</KeyCount>` +
		`<IsTruncated> true </IsTruncated><NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>` +
		`<CommonPrefixes><Prefix>T/a/</Prefix></CommonPrefixes><Contents><Prefix>no</Prefix></Contents><CommonPrefixes><Prefix>T/b/</Prefix><Prefix>T/c/</Prefix></CommonPrefixes></ListBucketResult>`,
	`<ListBucketResult><IsTruncated>perhaps</IsTruncated></ListBucketResult>`,
	`<ListBucketResult/>` + "\xd0", `<ListBucketResult><IsTruncated>true</IsTruncated>`, `<ListBucketResult></Error>`, `<Error><Code>x</Error></Code>`,
	`<!DOCTYPE html><html><body>Bad gateway</body></html>`, `<Error><Code>&nbsp;</Code></Error>`, `<Error><Code>&#xD800;</Code></Error>`,
	`<Error><Code>&#4294967361;</Code></Error>`, `<Error><Code>&amp</Code></Error>`,
	"", "x", "<", "</", "<>", "<a", "<a/", "<!--", "<?", `<a b="`, "<Error><Code>\xff</Code></Error>", "<Error><Code>&#x110000;</Code></Error>", strings.Repeat("<a>", 100),
}

// refusalOf is what refusal takes from a document.
func refusalOf(doc string) (errorXML, error) {
	said, err := readXML(strings.NewReader(doc), maxRefusal)
	if err != nil {
		return errorXML{}, err
	}
	if said.name != "Error" {
		return errorXML{}, errNoXML
	}
	return errorXML{Code: said.last("Code"), Message: said.last("Message")}, nil
}

// What encoding/xml reads is read, and alike, but for document types and depth. What it does not read may be read.
func FuzzXML(f *testing.F) {
	for _, doc := range documents {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		if len(doc) > maxRefusal || !shallow(doc) {
			_, _ = readXML(strings.NewReader(doc), maxRefusal) // does not panic
			return
		}
		var list listXML
		if err := xml.Unmarshal([]byte(doc), &list); err == nil {
			got, err := readPage(strings.NewReader(doc))
			require.NoError(t, err)
			require.Equal(t, page{list.Truncated, list.Next, list.Prefixes}, got)
		}
		var refused errorXML
		if err := xml.Unmarshal([]byte(doc), &refused); err == nil {
			refused.XMLName = xml.Name{}
			got, err := refusalOf(doc)
			require.NoError(t, err)
			require.Equal(t, refused, got)
		}
	})
}

// shallow reports that a document has neither a document type nor more depth than is read.
func shallow(doc string) bool {
	d := xml.NewDecoder(strings.NewReader(doc))
	depth := 0
	for {
		token, err := d.Token()
		if err != nil {
			return true
		}
		switch token.(type) {
		case xml.Directive:
			return false
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return false
			}
		case xml.EndElement:
			depth--
		}
	}
}

// What S3 answers is understood; what is cut short or is something else is an error.
func TestReadXML(t *testing.T) {
	want := map[int]errorXML{
		0: {Code: "NoSuchKey", Message: "The specified key does not exist."}, 1: {Code: `B & CD <>"'`}, 2: {Code: "ABD", Message: "x\n\ny"}, 3: {Code: "<&amp;"},
		12: {Code: "\uFFFD"},
	}
	for i, doc := range documents {
		got, err := refusalOf(doc)
		if said, ok := want[i]; ok {
			require.NoError(t, err, doc)
			require.Equal(t, said, got, doc)
		} else {
			require.Error(t, err, doc)
		}
		p, err := readPage(strings.NewReader(doc))
		switch i {
		case 4:
			require.NoError(t, err)
			require.Equal(t, page{true, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=", []string{"T/a/", "T/b/", "T/c/"}}, p)
		case 6:
			require.NoError(t, err)
			require.Zero(t, p)
		default:
			require.Error(t, err, doc)
		}
	}
}

// However an answer is cut short, it is an error and no shorter list.
func TestCutShort(t *testing.T) {
	list := documents[4]
	for n := range len(list) {
		_, err := readPage(strings.NewReader(list[:n]))
		require.Error(t, err, list[:n])
		_, err = readXML(strings.NewReader(list), int64(n))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a bound")
	}
}

// Elements lie as deep as S3's do, and deeper, but not without end.
func TestDepth(t *testing.T) {
	for n, ok := range map[int]bool{3: true, maxDepth: true, maxDepth + 1: false} {
		_, err := readXML(strings.NewReader(strings.Repeat("<a>", n)+strings.Repeat("</a>", n)), maxList)
		require.Equal(t, ok, err == nil, n)
	}
}
