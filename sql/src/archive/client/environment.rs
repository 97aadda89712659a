//! Reads environment variables for the clients of all stores.

use std::str::FromStr;

/// An error about a variable that cannot be used. It does not contain the value, which may be
/// secret.
#[derive(Debug)]
pub struct Unusable(pub String);

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// Returns a variable of the environment if it is not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a client's settings from variables with this prefix, if the client knows them.
pub fn of_environment<K: FromStr>(beginning: &str) -> impl Iterator<Item = (K, String)> {
    std::env::vars_os().filter_map(move |(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(beginning))?;
        Some((name.to_ascii_lowercase().parse().ok()?, value.into_string().ok()?))
    })
}

/// Whether an address is a server without TLS on this machine. Then credentials may be sent
/// unencrypted, because they don't leave the machine.
pub fn is_local_without_tls(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::is_local_without_tls;

    #[test]
    fn only_loopback_counts_as_this_machine() {
        for here in ["http://127.0.0.1:10000/account", "http://localhost", "http://[::1]:1/"] {
            assert!(is_local_without_tls(here), "{here}");
        }
        for there in [
            "https://localhost",
            "http://store/",
            "http://localhost.example.org",
            "http://localhost:1@example.org/",
            "http://example.org/?localhost",
        ] {
            assert!(!is_local_without_tls(there), "{there}");
        }
    }
}
