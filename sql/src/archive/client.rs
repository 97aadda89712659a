//! Creates clients of object stores. Credentials come from the same environment variables that each
//! store's own tools read.

mod azure;
mod environment;
mod google;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

pub use environment::Unusable;
use environment::variable;

/// Number of retries of a request that the store did not answer.
const RETRIES: usize = 4;
/// Time after which a request is not retried.
const RETRY_TIME: Duration = Duration::from_secs(30);

/// Kind of object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory. Paths of its objects are absolute paths of the file system.
    Directory(PathBuf),
    /// S3 and stores with its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl Kind {
    /// Returns the kind of store for an address's scheme.
    pub fn of_scheme(scheme: &str) -> Option<Kind> {
        match scheme {
            "s3" | "s3a" => Some(Kind::S3),
            "gs" => Some(Kind::Google),
            "az" | "abfs" | "abfss" => Some(Kind::Azure),
            _ => None,
        }
    }

    /// Returns the scheme for the query engine; `None` for a directory.
    pub fn scheme(&self) -> Option<&'static str> {
        match self {
            Kind::Directory(_) => None,
            Kind::S3 => Some("s3"),
            Kind::Google => Some("gs"),
            Kind::Azure => Some("az"),
        }
    }

    /// Lists the environment variables with credentials, for error messages.
    pub fn access(&self) -> &'static str {
        match self {
            Kind::Directory(_) => "",
            Kind::S3 => {
                "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; AWS_ENDPOINT_URL of another server"
            }
            Kind::Google => {
                "GOOGLE_APPLICATION_CREDENTIALS=FILE; gcloud auth application-default login"
            }
            Kind::Azure => {
                "AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN; \
                 AZURE_STORAGE_CONNECTION_STRING"
            }
        }
    }

    /// Lists the environment variables that configure how the store is reached, for error messages.
    pub fn reach(&self) -> &'static str {
        match self {
            Kind::Directory(_) => "",
            Kind::S3 => {
                "AWS_ENDPOINT_URL, AWS_ALLOW_HTTP=true of a server without TLS, HTTPS_PROXY"
            }
            Kind::Google => "HTTPS_PROXY; STORAGE_EMULATOR_HOST of another server",
            Kind::Azure => {
                "AZURE_STORAGE_ACCOUNT, HTTPS_PROXY; AZURE_STORAGE_CONNECTION_STRING of another server"
            }
        }
    }

    /// Lists the environment variables that permit access without TLS, for error messages.
    pub fn without_tls(&self) -> &'static str {
        match self {
            Kind::Directory(_) => "",
            Kind::S3 => "AWS_ALLOW_HTTP=true, or https:// in AWS_ENDPOINT_URL",
            Kind::Google => "GOOGLE_ALLOW_HTTP=true, or https:// in GOOGLE_BASE_URL",
            Kind::Azure => "AZURE_ALLOW_HTTP=true, or https:// in the address of the server",
        }
    }

    /// Creates a client of a bucket. It may only be used in one Tokio runtime, because its
    /// connections belong to the runtime in which it is first used.
    pub fn client(&self, bucket: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
        };
        Ok(match self {
            Kind::Directory(_) => Arc::new(LocalFileSystem::new()),
            Kind::S3 => Arc::new(
                AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry).build()?,
            ),
            Kind::Google => Arc::new(
                google::settings(variable)?.with_bucket_name(bucket).with_retry(retry).build()?,
            ),
            Kind::Azure => Arc::new(
                azure::settings(variable)?.with_container_name(bucket).with_retry(retry).build()?,
            ),
        })
    }
}
