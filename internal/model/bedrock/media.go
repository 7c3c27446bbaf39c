package bedrock

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // for image.DecodeConfig, as the next two
	_ "image/jpeg"
	_ "image/png"
	"mime"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/run"
)

// attached stands beside documents that came without a word: Bedrock refuses a message that has a document and no text.
const attached = "(See the attached document.)"

var imageFormats = map[string]types.ImageFormat{
	"image/png":  types.ImageFormatPng,
	"image/jpeg": types.ImageFormatJpeg,
	"image/jpg":  types.ImageFormatJpeg,
	"image/gif":  types.ImageFormatGif,
	"image/webp": types.ImageFormatWebp,
}

// documentFormats has more than Bedrock's own formats: what is text by another name is sent as text.
var documentFormats = map[string]types.DocumentFormat{
	"application/pdf":    types.DocumentFormatPdf,
	"text/csv":           types.DocumentFormatCsv,
	"application/msword": types.DocumentFormatDoc,
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document": types.DocumentFormatDocx,
	"application/vnd.ms-excel": types.DocumentFormatXls,
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": types.DocumentFormatXlsx,
	"text/html":        types.DocumentFormatHtml,
	"text/plain":       types.DocumentFormatTxt,
	"text/markdown":    types.DocumentFormatMd,
	"application/json": types.DocumentFormatTxt,
	"application/yaml": types.DocumentFormatTxt,
	"application/xml":  types.DocumentFormatTxt,
	"text/xml":         types.DocumentFormatTxt,
}

var videoFormats = map[string]types.VideoFormat{
	"video/mp4":        types.VideoFormatMp4,
	"video/quicktime":  types.VideoFormatMov,
	"video/x-matroska": types.VideoFormatMkv,
	"video/webm":       types.VideoFormatWebm,
	"video/x-flv":      types.VideoFormatFlv,
	"video/mpeg":       types.VideoFormatMpeg,
	"video/x-ms-wmv":   types.VideoFormatWmv,
	"video/3gpp":       types.VideoFormatThreeGp,
}

// What Bedrock takes in one request, whatever the model. Images have bounds of Claude's alone, and the size of a PDF or
// DOCX that the newer models read as pictures has none: what a model makes of those, it says itself.
const (
	maxPictures    = 20 // with the documents; of more, newer models of Claude's take some at 2,000 pixels a side
	maxPictureSide = 8000
	maxPicture     = 15 << 18 // bytes: 5 MiB as base64

	maxDocuments = 5
	maxDocument  = 9 << 19  // bytes of a document that is read as text: 4.5 MiB
	maxMedia     = 25 << 20 // bytes of all media together; more is no request at all
)

// attachments are the media of a request so far. Of more than a request takes, the newest stay.
type attachments struct {
	names        map[string]bool // of documents, in lower case
	claude       bool            // whose models refuse a request with a video or with more or larger pictures than those
	older        int             // so many media are left out for the bytes of the newer ones
	oldPictures  int             // so many pictures are left out for newer ones
	oldDocuments int             // so many documents, in the same way
}

func newAttachments(claude bool, messages []run.Message) attachments {
	a := attachments{names: map[string]bool{}, claude: claude}
	pictures, documents, size, fits := 0, 0, 0, true
	for _, m := range slices.Backward(messages) {
		b, ok := m.Block.(run.Media)
		if !ok {
			continue
		}
		n := base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(b.Data, "=")))
		if n <= maxMedia { // else it is left out itself
			size += n
		}
		if fits = fits && size <= maxMedia; !fits {
			a.older++
			continue
		}
		kind, _, _ := mime.ParseMediaType(b.MediaType) // none is none that counts
		if _, ok := imageFormats[kind]; ok {
			pictures++
		} else if _, ok := documentFormat(kind); ok {
			documents++
		}
	}
	a.oldDocuments = max(documents-maxDocuments, 0)
	a.oldPictures = pictures + documents - a.oldDocuments - maxPictures
	return a
}

// block makes a block of media. Its error says why the request goes without them.
func (a *attachments) block(m run.Media) (types.ContentBlock, error) {
	a.older--
	data, err := base64.StdEncoding.DecodeString(m.Data)
	if err != nil || len(data) == 0 {
		return nil, errors.New("its data is not base64")
	}
	kind, _, err := mime.ParseMediaType(m.MediaType)
	if err != nil {
		return nil, errors.New("it has no media type")
	}
	if a.older >= 0 || len(data) > maxMedia {
		return nil, fmt.Errorf("a request to Bedrock has at most %d bytes of media", maxMedia)
	}
	if format, ok := imageFormats[kind]; ok {
		if err := a.picture(data); err != nil {
			return nil, err
		}
		return &types.ContentBlockMemberImage{Value: types.ImageBlock{
			Format: format, Source: &types.ImageSourceMemberBytes{Value: data},
		}}, nil
	}
	if format, ok := videoFormats[kind]; ok {
		if a.claude {
			return nil, errors.New("the model takes no video")
		}
		return &types.ContentBlockMemberVideo{Value: types.VideoBlock{
			Format: format, Source: &types.VideoSourceMemberBytes{Value: data},
		}}, nil
	}
	format, ok := documentFormat(kind)
	if !ok {
		return nil, errors.New("the type is none that Bedrock takes")
	}
	if a.oldDocuments > 0 {
		a.oldDocuments--
		return nil, fmt.Errorf("a request to Bedrock has at most %d documents", maxDocuments)
	}
	pictured := format == types.DocumentFormatPdf || format == types.DocumentFormatDocx
	if len(data) > maxDocument && !pictured {
		return nil, fmt.Errorf("a document for Bedrock has at most %d bytes", maxDocument)
	}
	// Bedrock refuses a name that comes twice. The same documents in the same order get the same names, so that the cached
	// prefix stays the same.
	name := neutralName(m.Name)
	free := name
	for i := 2; a.names[strings.ToLower(free)]; i++ {
		free = fmt.Sprintf("%s (%d)", name, i)
	}
	a.names[strings.ToLower(free)] = true
	return &types.ContentBlockMemberDocument{Value: types.DocumentBlock{
		Format: format, Name: &free, Source: &types.DocumentSourceMemberBytes{Value: data},
	}}, nil
}

func documentFormat(kind string) (types.DocumentFormat, bool) {
	format, ok := documentFormats[kind]
	if !ok && strings.HasPrefix(kind, "text/") {
		return types.DocumentFormatTxt, true
	}
	return format, ok
}

// picture says why a picture is left out; nil if it is not.
func (a *attachments) picture(data []byte) error {
	if !a.claude {
		return nil
	}
	if a.oldPictures > 0 {
		a.oldPictures--
		return fmt.Errorf("a request to Claude has at most %d pictures and documents", maxPictures)
	}
	if len(data) > maxPicture {
		return fmt.Errorf("a picture for Claude has at most %d bytes", maxPicture)
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err == nil && max(size.Width, size.Height) > maxPictureSide { // else Claude says what is wrong
		return fmt.Errorf("a picture for Claude has at most %d pixels a side", maxPictureSide)
	}
	return nil
}

var (
	notAllowed = regexp.MustCompile(`[^A-Za-z0-9 ()\[\]-]`)
	gaps       = regexp.MustCompile(`([ -])[ -]+`)
)

// neutralName keeps what Bedrock allows in a document's name: letters and digits of ASCII, hyphens, round and square
// brackets, single spaces. Each run of other characters becomes a hyphen. At most 100 characters; nothing left =
// "document".
func neutralName(name string) string {
	name = strings.TrimLeft(gaps.ReplaceAllString(notAllowed.ReplaceAllString(name, "-"), "$1"), " -")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 100)], " -"), "document")
}
