//! Runs fake-gcs-server, a server with the API of Google Cloud Storage. TPROF_TEST_FAKE_GCS names
//! its program.
//!
//! The server accepts a whole object only by Google's JSON API, but the client writes by the XML
//! API (`PUT /BUCKET/OBJECT`). [`translated`] translates between them, including the condition of
//! the request. Everything else goes to the server unchanged. The server has no uploads in parts,
//! and asks for no credentials.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use super::{BUCKET, Store, Variable};
use crate::servers::{Server, fetched, free_port, request, skip};

pub const STORE: Store = Store {
    scheme: "gs",
    secret: "rocket-of-google",
    start,
    settings: |port| vec![("STORAGE_EMULATOR_HOST", Some(format!("127.0.0.1:{port}")))],
    without_credentials,
    without_tls,
    access: "GOOGLE_APPLICATION_CREDENTIALS",
    objects,
    delete: |port, path| {
        let path = path.replace('/', "%2F");
        let answer = request(port, "DELETE", &format!("/storage/v1/b/{BUCKET}/o/{path}"), "", "");
        assert!(answer.contains(" 200 "), "{answer}");
    },
};

fn start() -> Option<Server> {
    let Some(program) = fetched("TPROF_TEST_FAKE_GCS", "fake-gcs/fake-gcs-server") else {
        skip("fake-gcs-server");
        return None;
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = Server::start(|own| {
        let mut command = Command::new(program);
        command.args(["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]);
        // The XML API of the server works only under one host name.
        command.args(["-port", own, "-public-host", &format!("127.0.0.1:{port}")]);
        command
    });
    let own = server.port;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || pass(client, own));
        }
    });
    let bucket = format!(r#"{{"name":"{BUCKET}"}}"#);
    let head = "Content-Type: application/json\r\n";
    let made = request(own, "POST", "/storage/v1/b?project=test", head, &bucket);
    assert!(made.contains(" 200 "), "{made}");
    server.port = port;
    Some(server)
}

fn without_credentials() -> Vec<Variable> {
    let nobody = format!("127.0.0.1:{}", free_port());
    vec![
        ("STORAGE_EMULATOR_HOST", None),
        ("GCE_METADATA_HOST", Some(nobody.clone())),
        ("GCE_METADATA_IP", Some(nobody)),
    ]
}

fn without_tls() -> Vec<Variable> {
    // With this key, the client requests no token.
    let key = format!(
        r#"{{"private_key":"{}","private_key_id":"a","client_email":"a@b","disable_oauth":true}}"#,
        STORE.secret
    );
    vec![
        ("STORAGE_EMULATOR_HOST", None),
        ("GOOGLE_BASE_URL", Some("http://store.invalid".into())),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", Some(key)),
    ]
}

fn objects(port: u16, prefix: &str) -> Vec<String> {
    let answer = request(port, "GET", &format!("/{BUCKET}?list-type=2&prefix={prefix}"), "", "");
    super::between(&answer, "<Key>", "</Key>")
}

/// Forwards one request and its answer.
fn pass(client: TcpStream, port: u16) {
    let mut reader = BufReader::new(&client);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(1..) if line.trim().is_empty() => break,
            Ok(1..) => head.push(line.trim_end().to_owned()),
            _ => return,
        }
    }
    let field = |name: &str| {
        let fields = head.iter().filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    let length = field("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let is_whole_object = head[0].starts_with("PUT ") && !head[0].contains('?');
    let answer = match is_whole_object {
        true => translated(port, &head[0], field("x-goog-if-generation-match"), &body),
        false => {
            head.retain(|line| !line.to_ascii_lowercase().starts_with("connection:"));
            head.push("Connection: close".to_owned());
            exchange(port, &head.join("\r\n"), &body)
        }
    };
    let _ = (&client).write_all(&answer);
}

fn exchange(port: u16, head: &str, body: &[u8]) -> Vec<u8> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    server.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
    server.write_all(body).unwrap();
    let mut answer = Vec::new();
    let _ = server.read_to_end(&mut answer);
    answer
}

/// Writes an object by the JSON API, and returns the answer in the form of the XML API.
fn translated(port: u16, line: &str, condition: Option<String>, object: &[u8]) -> Vec<u8> {
    let path = line.split(' ').nth(1).unwrap().trim_start_matches('/');
    let (bucket, name) = path.split_once('/').unwrap();
    let condition = condition.map(|of| format!("&ifGenerationMatch={of}")).unwrap_or_default();
    let name = name.replace('/', "%2F");
    let mut body = b"--part\r\nContent-Type: application/json\r\n\r\n{}\r\n--part\r\n\
        Content-Type: application/octet-stream\r\n\r\n"
        .to_vec();
    body.extend(object);
    body.extend(b"\r\n--part--\r\n");
    let head = format!(
        "POST /upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={name}{condition} HTTP/1.1\r\n\
         Host: 127.0.0.1:{port}\r\nContent-Type: multipart/related; boundary=part\r\n\
         Content-Length: {}\r\nConnection: close",
        body.len()
    );
    let answer = exchange(port, &head, &body);
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default();
    let tag = super::between(&answer, "\"etag\":\"", "\"");
    let generation = super::between(&answer, "\"generation\":\"", "\"");
    let fields = match (tag.first(), generation.first()) {
        (Some(tag), Some(generation)) => {
            format!("ETag: \"{tag}\"\r\nx-goog-generation: {generation}\r\n")
        }
        _ => String::new(),
    };
    format!("{status}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}
