//! Configures Google Cloud Storage from variables `GOOGLE_…`. If `STORAGE_EMULATOR_HOST` is set,
//! configures the test server that it names, as Google's own libraries do.

use std::sync::Arc;

use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, StaticCredentialProvider};

use super::environment::{is_local_without_tls, of_environment};

/// Variable with the address of a test server, which needs no credentials.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// Reads the settings from the environment; `variable` returns values that are not empty.
pub fn settings(
    variable: impl Fn(&str) -> Option<String>,
) -> object_store::Result<GoogleCloudStorageBuilder> {
    if let Some(host) = variable(EMULATOR) {
        // As in Google's libraries, credentials of the real store are never sent to the test
        // server. Without this provider of empty credentials, the client would search for real ones
        // before it writes.
        let nobody = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
        let of_connections = of_environment("GOOGLE_")
            .filter(|(key, _)| matches!(key, GoogleConfigKey::Client(_)))
            .fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| {
                builder.with_config(key, value)
            });
        return Ok(of_connections
            .with_base_url(&address(&host))
            .with_skip_signature(true)
            .with_credentials(Arc::new(nobody)));
    }
    let builder = GoogleCloudStorageBuilder::from_env();
    let allowed = GoogleConfigKey::Client(ClientConfigKey::AllowHttp);
    let is_here = variable("GOOGLE_BASE_URL").is_some_and(|url| is_local_without_tls(&url));
    // By default, the client would send a token to any address, even without TLS.
    match variable("GOOGLE_ALLOW_HTTP") {
        None => Ok(builder.with_config(allowed, is_here.to_string())),
        Some(_) => Ok(builder),
    }
}

fn address(host: &str) -> String {
    let host = host.trim_end_matches('/');
    if host.contains("://") { host.to_owned() } else { format!("http://{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_for_tests_has_an_address_with_or_without_scheme() {
        for host in ["localhost:4443", "http://localhost:4443", "http://localhost:4443/"] {
            let builder = settings(|name| (name == EMULATOR).then(|| host.to_owned())).unwrap();
            let url = builder.get_config_value(&GoogleConfigKey::BaseUrl);
            assert_eq!(url.as_deref(), Some("http://localhost:4443"));
        }
    }

    #[test]
    fn a_token_is_not_sent_without_tls() {
        let allowed = |url: &'static str| {
            let builder = settings(|name| (name == "GOOGLE_BASE_URL").then(|| url.to_owned()));
            let key = GoogleConfigKey::Client(ClientConfigKey::AllowHttp);
            builder.unwrap().get_config_value(&key)
        };
        assert_eq!(allowed("http://store.example.org").as_deref(), Some("false"));
        assert_eq!(allowed("http://127.0.0.1:4443").as_deref(), Some("true"));
    }
}
