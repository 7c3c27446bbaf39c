package standins

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { MainWithDynamoDB(m) }

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	installed(t)
	dir := t.TempDir()
	err := new(server).launch(filepath.Join(dir, "socket"), dir, false)
	require.ErrorContains(t, err, "DynamoDBLocal.jar")
}
