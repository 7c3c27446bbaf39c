package folder_test

import (
	"testing"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Blobs(t, func(t *testing.T) store.Blobs {
		b, _ := open(t)
		return b
	})
}

func TestIntakeConformance(t *testing.T) {
	storetest.Intake(t, func(t *testing.T) storetest.Taking {
		b, _ := open(t)
		return b
	})
}
