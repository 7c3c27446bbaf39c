package store_test

import (
	"testing"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table { return store.NewMemory() })
}

func TestBlobsConformance(t *testing.T) {
	storetest.Blobs(t, func(*testing.T) store.Blobs { return store.NewMemoryBlobs() })
}

func TestIntakeConformance(t *testing.T) {
	storetest.Intake(t, func(*testing.T) storetest.Taking { return store.NewMemoryBlobs() })
}
