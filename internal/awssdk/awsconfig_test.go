package awssdk_test

import (
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awssdk"
)

// setenv is the environment of a deployed function, with one variable changed, and no file of a profile.
func setenv(t *testing.T, name, value string) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	for k, v := range map[string]string{
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_PROFILE": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "S3CRET",
		"AWS_SESSION_TOKEN": "SESSION",
	} {
		t.Setenv(k, v)
	}
	t.Setenv(name, value)
}

// A function's environment is all that it needs: its role's credentials, its region and its endpoint.
func TestLoad(t *testing.T) {
	setenv(t, "AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	cfg, err := awssdk.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "eu-central-1", cfg.Region)
	require.Equal(t, "http://127.0.0.1:1", aws.ToString(cfg.BaseEndpoint))
	keys, err := cfg.Credentials.Retrieve(t.Context())
	require.NoError(t, err)
	require.Equal(t, "AKID S3CRET SESSION", keys.AccessKeyID+" "+keys.SecretAccessKey+" "+keys.SessionToken)
}

// An error names the variable, and holds no secret.
func TestLoadNamesWhatIsWrong(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_USE_FIPS_ENDPOINT": "yes", "AWS_USE_DUALSTACK_ENDPOINT": "1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "on",
		"AWS_MAX_ATTEMPTS": "many", "AWS_RETRY_MODE": "never",
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, name, value)
			_, err := awssdk.Load(t.Context())
			require.ErrorContains(t, err, name)
			require.NotContains(t, err.Error(), "S3CRET")
		})
	}
}
