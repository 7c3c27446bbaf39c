package store_test

import (
	"testing"

	"github.com/countersign/countersign/internal/store"

	"github.com/countersign/countersign/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table { return store.NewMemory() })
}
