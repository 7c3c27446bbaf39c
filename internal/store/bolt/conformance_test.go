package bolt_test

import (
	"testing"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

func TestFolderConformance(t *testing.T) {
	storetest.Blobs(t, func(t *testing.T) store.Blobs {
		b, _ := openFolder(t)
		return b
	})
}

func TestIntakeConformance(t *testing.T) {
	storetest.Intake(t, func(t *testing.T) storetest.Taking {
		b, _ := openFolder(t)
		return b
	})
}
