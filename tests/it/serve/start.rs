//! Tests of how a server starts, or why it refuses to.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tprof_tests::{Job, Scratch, Served, assert_refused, mode_of, need, tprof_at};

use super::runs;

fn refused(options: &[&str], path: &Path, words: &[&str]) {
    let outcome = Served::job(options).arg(path).run_in(path.parent().unwrap());
    assert_refused(&outcome, words);
}

#[test]
fn directories_that_cannot_be_served_are_refused() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let file = scratch.write("trace.json", "{}");
    refused(&[], &scratch.join("absent"), &["absent", "No such file"]);
    refused(&[], &file, &["trace.json", "is a file"]);
    let trace = directory.join("recorded/rank-0.tprof");
    refused(&[], &trace, &["is a file", "tprof serve DIR"]);
    refused(&["--bind", "localhost"], &directory, &["localhost", "IP address"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["--port", &port], &directory, &[&port, "--port"]);
    for address in ["0.0.0.0", "::", "192.0.2.1"] {
        refused(&["--bind", address], &directory, &["certificate", "--tls-cert"]);
    }
    let missing = ["--tls-cert", "/nothing.pem", "--tls-key", "/nothing.pem"];
    refused(&missing, &directory, &["nothing.pem", "--tls-cert"]);
    let empty = scratch.write("empty.pem", "");
    let empty = empty.to_str().unwrap();
    refused(&["--tls-cert", empty, "--tls-key", empty], &directory, &["empty.pem"]);
    refused(&["--memory-limit", "1K"], &directory, &["1K", "64 MiB"]);
    refused(&["--time-limit", "0s"], &directory, &["0s", "--time-limit"]);
}

#[test]
fn a_token_file_is_its_owners_only() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let path = scratch.join("token");
    let options = ["--token-file", path.to_str().unwrap()];
    let first = Served::start(&directory, &options);
    assert_eq!(mode_of(&path), 0o600);
    assert_eq!(fs::read_to_string(&path).unwrap().trim(), first.token);
    let second = Served::start(&directory, &options);
    assert_eq!(second.token, first.token);
    second.assert_answers();
    for mode in [0o640, 0o604, 0o660, 0o644] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        refused(&options, &directory, &["others can read", "chmod 600"]);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for text in ["", "short", "z".repeat(32).as_str(), "0".repeat(10_000).as_str()] {
        fs::write(&path, text).unwrap();
        refused(&options, &directory, &["token"]);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&options, &directory, &["token"]);
}

#[test]
fn a_server_that_cannot_print_its_address_does_not_start() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let mut command = Command::new(tprof_at());
    command.args(["serve", "--no-browser"]).arg(&directory);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(125), "{errors}");
    assert!(errors.contains("cannot print the address"), "{errors}");
}

#[test]
fn with_a_certificate_connections_are_encrypted() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 \
                -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    let made = Job::sh(make).run_in(scratch.path());
    need!(made.code == Some(0), "there is no openssl");
    let (certificate, key) = (scratch.join("cert.pem"), scratch.join("key.pem"));
    let options = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let served = Served::start(&directory, &options);
    assert!(served.url.starts_with("https://"), "{}", served.url);
    let client = "import http.client, ssl, sys\n\
        host, port = sys.argv[1].split(':')\n\
        trusted = ssl.create_default_context(cafile=sys.argv[3])\n\
        def get(path, headers={}):\n\
        \x20   to = http.client.HTTPSConnection(host, int(port), context=trusted, timeout=60)\n\
        \x20   to.request('GET', path, headers=headers)\n\
        \x20   return to.getresponse()\n\
        print(get('/api/v1').status)\n\
        print(get('/api/v1', {'Authorization': 'Bearer ' + sys.argv[2]}).status)\n\
        welcome = get('/' + sys.argv[2] + '/')\n\
        print(welcome.status, welcome.headers['Set-Cookie'].endswith('; Secure'))\n";
    let job = Job::new("python3").args(["-c", client, &served.address, &served.token]);
    let outcome = job.arg(&certificate).run_in(scratch.path());
    assert_eq!(outcome.stdout, "401\n200\n200 True\n", "{outcome:?}");
    // A request that is not encrypted gets no answer.
    assert_eq!(served.get("/api/v1").status, 0);
    refused(&["--tls-cert", options[3], "--tls-key", options[1]], &directory, &["--tls-cert"]);
    // With a certificate, other machines may reach the server, by the host names in its options.
    let job = Served::job(&options).args(["--bind", "0.0.0.0", "--host", "gpu07.example"]);
    let open = Served::of(job.arg(&directory));
    assert!(open.url.starts_with("https://gpu07.example:"), "{}", open.url);
}
