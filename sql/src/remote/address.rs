//! Parses Spark's connection string, `sc://HOST:PORT/;KEY=VALUE;…`: the address of a server, and
//! the user in whose name requests are sent.

use percent_encoding::percent_decode_str;
use tprof_ui::errors::Failure;

use crate::status::MISUSE;

/// Default port of a server.
const PORT: u16 = 15002;
/// Spark's own variable for the access token.
pub const TOKEN: &str = "SPARK_CONNECT_AUTHENTICATE_TOKEN";
/// Names of this machine. A token may be sent to them without TLS, because it does not leave the
/// machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Address of a server. Credentials appear neither in [`Address::shown`] nor in a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name as in its certificate; IPv6 in brackets.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Whether to use TLS.
    pub is_tls: bool,
    /// Access token, if any.
    pub token: Option<String>,
    /// Name of the user.
    pub user: String,
    /// Name of the program that sends requests.
    pub agent: String,
    /// Additional headers of each request.
    pub headers: Vec<(String, String)>,
}

impl Address {
    /// Parses a connection string; `environment` returns variables.
    pub fn parse(
        text: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Address, Failure> {
        // The text is not repeated, because it may contain a token.
        let wrong = |why: String| {
            Failure::new("--remote names no Spark Connect server")
                .cause(why)
                .hint("--remote sc://HOST:15002, or sc://HOST:443/;use_ssl=true")
                .code(MISUSE)
        };
        let rest = text
            .strip_prefix("sc://")
            .ok_or_else(|| wrong("an address of Spark Connect begins with sc://".into()))?;
        let (place, parameters) = match rest.split_once('/') {
            Some((place, parameters)) => (place, parameters),
            None => (rest, ""),
        };
        if place.contains(';') || !(parameters.is_empty() || parameters.starts_with(';')) {
            return Err(wrong("parameters come after `/;`".into()));
        }
        let (host, port) = host_and_port(place).map_err(&wrong)?;
        let mut address = Address {
            host,
            port,
            is_tls: false,
            token: None,
            user: environment("USER").unwrap_or_default(),
            agent: concat!("tprof/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
        };
        let mut use_ssl = None;
        for parameter in parameters.split(';').filter(|one| !one.is_empty()) {
            let (key, value) = parameter
                .split_once('=')
                .ok_or_else(|| wrong("a parameter is KEY=VALUE".into()))?;
            let value = percent_decode_str(value)
                .decode_utf8()
                .map_err(|_| wrong(format!("the value of `{key}` is not UTF-8 text")))?
                .into_owned();
            let key = key.to_lowercase();
            match key.as_str() {
                "use_ssl" => {
                    use_ssl = Some(
                        value
                            .parse::<bool>()
                            .map_err(|_| wrong("`use_ssl` is true or false".into()))?,
                    );
                }
                "token" => address.token = Some(value),
                "user_id" => address.user = value,
                "user_agent" => address.agent = value,
                "session_id" => {
                    return Err(wrong(
                        "`session_id` is another client's; tprof's views have a session of their own"
                            .into(),
                    ));
                }
                other if is_reserved(other) => {
                    return Err(wrong(format!("`{other}` is set by the protocol itself")));
                }
                other => match PARAMETERS.iter().find(|known| is_slip(other, known)) {
                    Some(known) => {
                        return Err(wrong(format!("`{other}` is not a parameter; {known} is")));
                    }
                    None => address.headers.push((key, value)),
                },
            }
        }
        address.token = address.token.or_else(|| environment(TOKEN)).filter(|of| !of.is_empty());
        let is_here = LOOPBACK.contains(&address.host.as_str());
        // Headers such as `authorization` and `x-api-key` can contain a secret too.
        let is_secret = address.token.is_some() || !address.headers.is_empty();
        if is_secret && use_ssl == Some(false) && !is_here {
            return Err(wrong("a token or a header would be sent without TLS".into()));
        }
        // Spark's own clients choose TLS in the same way.
        address.is_tls = use_ssl.unwrap_or(is_secret && !is_here);
        Ok(address)
    }

    /// Returns the address without secrets.
    pub fn shown(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Known parameters of a connection string.
const PARAMETERS: [&str; 5] = ["use_ssl", "token", "user_id", "user_agent", "session_id"];

/// Whether the protocol itself uses this header.
fn is_reserved(name: &str) -> bool {
    let is_user_view = ["connection", "content-type", "host", "te", "user-agent"].contains(&name);
    is_user_view || name.starts_with("grpc-")
}

/// Whether a name differs from a known one only by separators between words, so that it is probably
/// a typing error.
fn is_slip(name: &str, known: &str) -> bool {
    let letters = |text: &str| text.replace(['_', '-'], "");
    letters(name) == letters(known)
}

fn host_and_port(place: &str) -> Result<(String, u16), String> {
    if place.contains(['@', '?', '#']) {
        return Err("its host and port are followed by `/;` only".into());
    }
    let end = match place.strip_prefix('[') {
        Some(rest) => rest.find(']').ok_or("an IPv6 address ends with `]`")? + 2,
        None => place.find(':').unwrap_or(place.len()),
    };
    let (host, port) = place.split_at(end);
    if host.is_empty() {
        return Err("it has no host".into());
    }
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| "the text after `:` is not a port")?,
        None if port.is_empty() => PORT,
        None => return Err("a port comes after `:`".into()),
    };
    Ok((host.to_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, Failure> {
        Address::parse(text, |_| None)
    }

    #[test]
    fn a_connection_string_is_read_as_sparks_clients_read_it() {
        let address = parse("sc://Host/;use_ssl=true;user_id=me;x-A-b=c%3D%3b;token=t").unwrap();
        assert_eq!((address.shown().as_str(), address.is_tls), ("host:15002", true));
        assert_eq!((address.user.as_str(), address.token.as_deref()), ("me", Some("t")));
        assert_eq!(address.headers, [("x-a-b".to_owned(), "c=;".to_owned())]);
        assert_eq!(parse("sc://[::1]:5").unwrap().shown(), "[::1]:5");
        for wrong in [
            "http://a",
            "sc://",
            "sc://a:b",
            "sc://a/b",
            "sc://a/;b",
            "sc://a;b=c",
            "sc://[::1",
            "sc://a/;usessl=true",
            "sc://a/;grpc-timeout=1n",
            "sc://me:secret@a:1",
            "sc://a:1?token=secret",
            "sc://a/;authorization=secret;use_ssl=false",
        ] {
            let error = parse(wrong).err().unwrap_or_else(|| panic!("{wrong}"));
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn a_token_goes_nowhere_without_tls() {
        let with =
            |text: &str| Address::parse(text, |name| (name == TOKEN).then(|| "secret".into()));
        assert!(with("sc://a").unwrap().is_tls);
        assert!(!with("sc://localhost").unwrap().is_tls);
        let refused = with("sc://a/;use_ssl=false").err().unwrap();
        assert!(!format!("{refused:?}").contains("secret"));
        assert_eq!(with("sc://a/;token=other").unwrap().token.as_deref(), Some("other"));
        assert_eq!(parse("sc://a").unwrap().token, None);
        assert!(
            parse("sc://a/;Token=t").unwrap().is_tls && parse("sc://a/;x-key=t").unwrap().is_tls
        );
        assert!(parse("sc://a/;Use_SSL=true").unwrap().is_tls);
    }
}
