package deployed

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/runtime"
)

// Embedder finds the embedder that an agent asks for. Making one opens no connection.
func (m model) Embedder(e agent.Embeddings) (runtime.Embedder, bool) {
	if e.Provider != agent.EmbeddingsBedrock {
		return nil, false
	}
	return bedrock.NewEmbedder(m.cfg, "", e.ID), true
}
