package deployed

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/runtime"
)

// Embedder finds the embedder that an agent asks for. All ask over the models' client.
func (m model) Embedder(e agent.Embeddings) (runtime.Embedder, bool) {
	if e.Provider != agent.EmbeddingsBedrock {
		return nil, false
	}
	return bedrock.NewEmbedder(m.client, e.ID), true
}
