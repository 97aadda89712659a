//! Runs moto, a server with the API of S3. TPROF_TEST_S3_PYTHON names a Python that has it.

use std::path::PathBuf;
use std::process::Command;

use super::{BUCKET, Store, Variable};
use crate::servers::{Server, fetched, free_port, request, skip};

pub const STORE: Store = Store {
    scheme: "s3",
    secret: "wJalrXUtnFEMI",
    start,
    settings,
    without_credentials,
    without_tls: || vec![("AWS_ALLOW_HTTP", None)],
    access: "AWS_ACCESS_KEY_ID",
    objects,
    delete: |port, path| {
        // moto reads the user from the header, but checks no signature.
        let head = "Authorization: AWS AKIDEXAMPLE:none\r\n";
        let answer = request(port, "DELETE", &format!("/{BUCKET}/{path}"), head, "");
        assert!(answer.contains(" 204 "), "{answer}");
    },
};

fn start() -> Option<Server> {
    let has_moto = |python: &PathBuf| {
        let found = Command::new(python).args(["-c", "import moto.server"]).output();
        found.is_ok_and(|found| found.status.success())
    };
    let python = fetched("TPROF_TEST_S3_PYTHON", "s3/bin/python").filter(has_moto);
    let Some(python) = python else {
        skip("moto");
        return None;
    };
    let server = Server::start(|port| {
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", port]);
        command
    });
    let made = request(server.port, "PUT", &format!("/{BUCKET}"), "", "");
    assert!(made.contains(" 200 "), "{made}");
    Some(server)
}

fn settings(port: u16) -> Vec<Variable> {
    vec![
        ("AWS_ENDPOINT_URL", Some(format!("http://127.0.0.1:{port}"))),
        ("AWS_ALLOW_HTTP", Some("true".into())),
        ("AWS_REGION", Some("us-east-1".into())),
        ("AWS_ACCESS_KEY_ID", Some("AKIDEXAMPLE".into())),
        ("AWS_SECRET_ACCESS_KEY", Some(STORE.secret.into())),
    ]
}

fn without_credentials() -> Vec<Variable> {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    vec![
        ("AWS_ACCESS_KEY_ID", None),
        ("AWS_SECRET_ACCESS_KEY", None),
        ("AWS_METADATA_ENDPOINT", Some(nobody)),
    ]
}

fn objects(port: u16, prefix: &str) -> Vec<String> {
    let answer = request(port, "GET", &format!("/{BUCKET}?list-type=2&prefix={prefix}"), "", "");
    super::between(&answer, "<Key>", "</Key>")
}
