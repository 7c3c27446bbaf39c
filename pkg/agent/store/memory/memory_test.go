package memory_test

import (
	"testing"

	"github.com/countersign/countersign/pkg/agent/store"
	"github.com/countersign/countersign/pkg/agent/store/memory"
	"github.com/countersign/countersign/pkg/agent/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table { return memory.New() })
}
