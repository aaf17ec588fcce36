//! Opens buckets, as the environment says.

use std::env;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use probe::store::{Bucket, Scheme, Stores};
use tokio::runtime::Runtime;

use crate::bucket::StoreBucket;

/// Threads that talk to stores; several requests are under way on each.
const WORKERS: usize = 2;

/// Longest time for one request with its answer, of a few MiB at most.
const REQUEST: Duration = Duration::from_secs(300);

/// Longest time for a connection to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// Attempts of the client before `probe::store` is told, which tries again itself.
const RETRIES: usize = 4;

/// Variables that may name the endpoint of a store.
const ENDPOINTS: [&str; 5] =
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];

/// The stores that the environment gives access to: `AWS_*`, `GOOGLE_*` and `AZURE_*` variables, or the identity of the machine.
#[derive(Debug, Default)]
pub struct ObjectStores {
    runtime: OnceLock<Runtime>,
}

impl ObjectStores {
    /// A bucket on a store that is open already.
    ///
    /// # Errors
    /// Why no threads can be started.
    pub(crate) fn bucket(&self, store: Arc<dyn ObjectStore>) -> Result<Box<dyn Bucket>, String> {
        if self.runtime.get().is_none() {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let built = builder.worker_threads(WORKERS).thread_name("probe-stores").enable_all().build();
            // Whoever was first wins; the other is dropped.
            _ = self.runtime.set(built.map_err(|error| format!("cannot start threads: {error}"))?);
        }
        let runtime = self.runtime.get().ok_or("cannot start threads")?;
        Ok(Box::new(StoreBucket::new(store, runtime.handle().clone())))
    }
}

impl Stores for ObjectStores {
    fn open(&self, scheme: Scheme, bucket: &str) -> Result<Box<dyn Bucket>, String> {
        // One provider for the process; another one that is there already serves as well.
        _ = rustls::crypto::ring::default_provider().install_default();
        // Who writes http:// into the variable wants it.
        let plain = ENDPOINTS.iter().any(|name| env::var(name).is_ok_and(|url| url.starts_with("http://")));
        let client = ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT);
        let client = client.with_allow_http(plain);
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: REQUEST, ..RetryConfig::default() };
        let store: Result<Arc<dyn ObjectStore>, _> = match scheme {
            Scheme::S3 => {
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                builder
                    .with_client_options(client)
                    .with_retry(retry)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
            Scheme::Gs => {
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
                builder
                    .with_client_options(client)
                    .with_retry(retry)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
            Scheme::Az => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket);
                builder
                    .with_client_options(client)
                    .with_retry(retry)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
        };
        let store = store.map_err(|error| {
            format!("{error}; access is set by the variables of the store, {}_*", prefix(scheme))
        })?;
        self.bucket(store)
    }
}

/// Prefixes of the variables of a store.
const fn prefix(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::S3 => "AWS",
        Scheme::Gs => "GOOGLE",
        Scheme::Az => "AZURE",
    }
}
