package deployed

import (
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/bedrock"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Embedder finds the embedder that an agent asks for. Making one opens no connection.
func (m model) Embedder(e agent.Embeddings) (runtime.Embedder, bool) {
	if e.Provider != agent.EmbeddingsBedrock {
		return nil, false
	}
	return bedrock.NewEmbedder(m.cfg, "", e.ID), true
}
