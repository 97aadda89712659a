//! Runs Azurite, a server with the API of Azure Blob Storage, on Node. TPROF_TEST_AZURITE names its
//! program.

use std::process::Command;

use sha2::{Digest, Sha256};

use super::{BUCKET, Store, Variable};
use crate::servers::{Server, fetched, free_port, request, skip};

/// Account of the server.
pub const ACCOUNT: &str = "tproftest";
/// Key of the account. [`STORE`] has it in base64 as its secret.
const KEY: &[u8] = b"tprof-test-key-0123456789abcdef!";

pub const STORE: Store = Store {
    scheme: "az",
    secret: "dHByb2YtdGVzdC1rZXktMDEyMzQ1Njc4OWFiY2RlZiE=",
    start,
    settings,
    without_credentials,
    without_tls: || {
        vec![("AZURE_STORAGE_ENDPOINT", Some(format!("http://store.invalid/{ACCOUNT}")))]
    },
    access: "AZURE_STORAGE_KEY",
    objects,
    delete: |port, path| {
        let answer =
            request(port, "DELETE", &format!("/{ACCOUNT}/{BUCKET}/{path}?{}", token()), "", "");
        assert!(answer.contains(" 202 "), "{answer}");
    },
};

/// Returns the address of the account at a server.
pub fn endpoint(port: u16) -> String {
    format!("http://127.0.0.1:{port}/{ACCOUNT}")
}

fn start() -> Option<Server> {
    let Some(azurite) = fetched("TPROF_TEST_AZURITE", "azurite/azurite.js") else {
        skip("Azurite");
        return None;
    };
    let server = Server::start(|port| {
        let mut command = Command::new("node");
        command
            .arg(azurite)
            .args(["--inMemoryPersistence", "--silent", "--disableTelemetry", "--blobPort", port])
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{}", STORE.secret));
        command
    });
    let container = format!("/{ACCOUNT}/{BUCKET}?restype=container&{}", token());
    let made = request(server.port, "PUT", &container, "", "");
    assert!(made.contains(" 201 "), "{made}");
    Some(server)
}

fn settings(port: u16) -> Vec<Variable> {
    vec![
        ("AZURE_STORAGE_ACCOUNT", Some(ACCOUNT.into())),
        ("AZURE_STORAGE_KEY", Some(STORE.secret.into())),
        ("AZURE_STORAGE_ENDPOINT", Some(endpoint(port))),
    ]
}

fn without_credentials() -> Vec<Variable> {
    let nobody = format!("http://127.0.0.1:{}/metadata/identity/oauth2/token", free_port());
    vec![("AZURE_STORAGE_KEY", None), ("AZURE_MSI_ENDPOINT", Some(nobody))]
}

fn objects(port: u16, prefix: &str) -> Vec<String> {
    let path =
        format!("/{ACCOUNT}/{BUCKET}?restype=container&comp=list&prefix={prefix}&{}", token());
    super::between(&request(port, "GET", &path, "", ""), "<Name>", "</Name>")
}

/// Returns a shared access signature of the account, which may do everything with its blobs.
pub fn token() -> String {
    let (may, services, types, until, version) =
        ("rwdlac", "b", "sco", "2099-01-01T00:00:00Z", "2021-12-02");
    let text = format!("{ACCOUNT}\n{may}\n{services}\n{types}\n\n{until}\n\n\n{version}\n\n");
    let signature = base64(&hmac(KEY, text.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let until = until.replace(':', "%3A");
    format!("sv={version}&ss={services}&srt={types}&sp={may}&se={until}&sig={signature}")
}

/// Computes HMAC-SHA-256 with a key of at most 64 bytes.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |with: u8| {
        let mut pad = [with; 64];
        pad.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        pad
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
