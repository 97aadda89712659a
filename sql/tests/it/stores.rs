//! Tests `tprof archive` into object stores. The same tests run for each store, with servers on
//! loopback that `scripts/test-readers.sh` fetches. If a server is missing, its tests only print
//! that they are skipped.

mod azurite;
mod fake_gcs;
mod moto;
mod serving;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use serving::{
    a_bucket_is_served_and_its_keys_are_in_no_argument_and_no_answer,
    a_server_of_a_bucket_that_is_not_there_does_not_start,
    a_server_of_an_archive_that_is_not_there_does_not_start,
    a_server_whose_store_never_answers_ends_at_once_with_all_it_started,
};

use crate::archive::{SUMS, begun, kill_at, succeeds};
use crate::runs::{Ended, number, of, program, rows, runs};
use crate::servers::{Server, free_port};

/// Bucket used in all stores.
const BUCKET: &str = "jobs";
/// Prefixes of variables that stores' clients read.
const VARIABLES: [&str; 6] = ["AWS_", "AZURE_", "AZURITE_", "GCE_", "GOOGLE_", "STORAGE_"];

/// An environment variable; `None` removes it.
type Variable = (&'static str, Option<String>);

/// Properties of a store.
struct Store {
    /// Scheme of its addresses.
    scheme: &'static str,
    /// Secret that no message may contain.
    secret: &'static str,
    /// Starts a server with a bucket in it; `None` if the server is missing.
    start: fn() -> Option<Server>,
    /// Settings of a client of the server at a port.
    settings: fn(u16) -> Vec<Variable>,
    /// Settings that remove the credentials, and set the address of the cloud's metadata service to
    /// one without a server.
    without_credentials: fn() -> Vec<Variable>,
    /// Settings with a secret, and a server without TLS elsewhere.
    without_tls: fn() -> Vec<Variable>,
    /// Variables that a message about missing credentials names.
    access: &'static str,
    /// Returns the paths of the objects below a prefix.
    objects: fn(u16, &str) -> Vec<String>,
    /// Deletes an object.
    delete: fn(u16, &str),
}

impl Store {
    /// Returns an address in its bucket.
    fn at(&self, prefix: &str) -> String {
        format!("{}://{BUCKET}/{prefix}", self.scheme)
    }

    fn at_port(&self, port: u16, words: &[&str]) -> Command {
        self.with(program(words), port)
    }

    /// Returns the same command with the store at a port.
    fn with(&self, mut command: Command, port: u16) -> Command {
        for (name, _) in std::env::vars_os() {
            if VARIABLES.iter().any(|of| name.to_string_lossy().starts_with(of)) {
                command.env_remove(name);
            }
        }
        // Google's tools store the user's credentials in the home directory.
        command.env("HOME", "/nonexistent");
        set(&mut command, (self.settings)(port));
        command
    }

    fn ended(&self, server: &Server, words: &[&str]) -> Ended {
        let ended = of(self.at_port(server.port, words).output().unwrap());
        assert!(!format!("{}{}", ended.out, ended.err).contains(self.secret), "{}", ended.err);
        ended
    }

    fn rows(&self, server: &Server, to: &str, query: &str) -> Vec<String> {
        let ended = self.ended(server, &[to, query, "--format=csv"]);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{query}");
        ended.out.lines().skip(1).map(str::to_owned).collect()
    }

    /// Runs a client without a server, and returns its messages.
    fn alone(&self, words: &[&str], settings: Vec<Variable>) -> Ended {
        let mut command = self.at_port(free_port(), words);
        set(&mut command, settings);
        let ended = of(command.output().unwrap());
        assert_eq!((ended.code, &*ended.out), (1, ""), "{}", ended.err);
        assert!(!ended.err.contains(self.secret), "{}", ended.err);
        ended
    }
}

fn set(command: &mut Command, variables: Vec<Variable>) {
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Returns each part of a text that lies between `before` and `after`.
fn between(text: &str, before: &str, after: &str) -> Vec<String> {
    let parts = text.split(before).skip(1).filter_map(|part| part.split(after).next());
    parts.map(str::to_owned).collect()
}

/// Defines a test of each fact of a store.
macro_rules! facts {
    ($module:ident: $store:path: $($fact:ident)*) => {
        mod $module {
            $(#[test]
            fn $fact() {
                super::$fact(&$store);
            })*
        }
    };
}

macro_rules! facts_of_all {
    ($module:ident: $store:path: $($more:ident)*) => {
        facts! {
            $module: $store:
            a_run_in_a_bucket_has_the_same_sums_as_the_run
            a_kill_leaves_all_of_a_run_in_a_bucket_or_nothing
            one_of_several_archivers_of_a_run_commits_it
            a_missing_object_is_an_error
            a_missing_server_is_named
            nothing_secret_is_sent_without_tls
            a_bucket_is_served_and_its_keys_are_in_no_argument_and_no_answer
            a_server_of_an_archive_that_is_not_there_does_not_start
            a_server_whose_store_never_answers_ends_at_once_with_all_it_started
            without_credentials_their_variables_are_named
            $($more)*
        }
    };
}

facts_of_all! {
    s3: super::moto::STORE:
    a_missing_bucket_is_named
    a_server_of_a_bucket_that_is_not_there_does_not_start
    an_object_that_is_sent_in_parts_is_whole
}
// Two facts are left out for Google's store, because its test server doesn't accept objects in
// parts and answers differently if a bucket is missing.
facts_of_all!(google: super::fake_gcs::STORE:);
facts_of_all! {
    azure: super::azurite::STORE:
    a_missing_bucket_is_named
    a_server_of_a_bucket_that_is_not_there_does_not_start
    an_object_that_is_sent_in_parts_is_whole
}

fn a_run_in_a_bucket_has_the_same_sums_as_the_run(store: &Store) {
    let Some(server) = (store.start)() else { return };
    let (run, to) = (runs().run(), store.at("a/b"));
    let words = ["archive", run.to_str().unwrap(), "--to", &to, "--raw", "kernels"];
    let done = store.ended(&server, &words);
    assert_eq!((done.code, &*done.err), (0, ""), "{}", done.out);
    assert_eq!(store.rows(&server, &to, SUMS), rows(&run, SUMS));
    let query = "SELECT count(*) FROM kernels WHERE duration_ns > 0";
    assert_eq!(store.rows(&server, &to, query)[0], number(&run, query).to_string());
    let whole = (store.objects)(server.port, "a/b/");
    let again = store.ended(&server, &words);
    assert!(again.code == 0 && again.out.contains("is in the archive as r8-"), "{}", again.out);
    assert_eq!((store.objects)(server.port, "a/b/"), whole);
    let listed = store.ended(&server, &["archive", "--list", &to]);
    assert!(listed.code == 0 && listed.out.contains("r8-"), "{}", listed.err);
    let checked = store.ended(&server, &["archive", "--check", &to]);
    assert_eq!((checked.code, &*checked.out), (0, ""));
    // Another prefix is another archive.
    let other = store.ended(&server, &["archive", "--list", &store.at("a")]);
    assert!(other.code == 0 && other.err.contains("has no run"), "{}", other.err);
}

fn a_kill_leaves_all_of_a_run_in_a_bucket_or_nothing(store: &Store) {
    let Some(server) = (store.start)() else { return };
    let run = runs().run();
    let run = run.to_str().unwrap();
    let temporary = TempDir::new().unwrap();
    let words = |to: &str| {
        let mut command = store.at_port(server.port, &["archive", run, "--to", to, "--raw", "all"]);
        command.env("TMPDIR", temporary.path());
        command
    };
    let count = |prefix: &str| (store.objects)(server.port, prefix).len();
    assert!(succeeds(words(&store.at("whole"))));
    let whole = count("whole/");
    let mut before_commit = 0;
    for at in (0..=whole).step_by(6) {
        let prefix = format!("killed-{at}/");
        let to = store.at(&format!("killed-{at}"));
        let killed = kill_at(begun(words(&to)), at, || count(&prefix));
        let is_there = count(&format!("{prefix}_runs/")) == 1;
        before_commit += usize::from(killed && !is_there);
        let runs = store.rows(&server, &to, "SELECT count(*) FROM runs");
        assert_eq!(runs[0], i64::from(is_there).to_string(), "killed at {at}");
        assert!(succeeds(words(&to)), "killed at {at}");
        assert_eq!(store.rows(&server, &to, SUMS), rows(run.as_ref(), SUMS), "killed at {at}");
        let checked = store.ended(&server, &["archive", "--check", &to]);
        assert_eq!((checked.code, &*checked.out), (0, ""), "killed at {at}");
        assert_eq!(count(&prefix), whole, "killed at {at}");
    }
    assert!(before_commit > 1, "{before_commit}");
}

fn one_of_several_archivers_of_a_run_commits_it(store: &Store) {
    let Some(server) = (store.start)() else { return };
    let (run, to) = (runs().run(), store.at("many"));
    let words = ["archive", run.to_str().unwrap(), "--to", &to];
    // All archivers check whether the run is in the archive before the first of them has made its
    // tables.
    let archivers: Vec<_> = (0..4)
        .map(|_| {
            let mut command = store.at_port(server.port, &words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let ended = archivers.into_iter().map(|one| of(one.wait_with_output().unwrap()));
    let ended: Vec<Ended> = ended.collect();
    for one in &ended {
        assert_eq!(one.code, 0, "{}", one.err);
    }
    let count = |what: &str| ended.iter().filter(|one| one.out.contains(what)).count();
    assert_eq!((count(": archived as r8-"), count(": is in the archive as r8-")), (1, 3));
    assert_eq!((store.objects)(server.port, "many/_runs/").len(), 1);
    assert_eq!(store.rows(&server, &to, SUMS), rows(&run, SUMS));
    let checked = store.ended(&server, &["archive", "--check", &to]);
    assert_eq!((checked.code, &*checked.out), (0, ""));
}

fn an_object_that_is_sent_in_parts_is_whole(store: &Store) {
    let Some(server) = (store.start)() else { return };
    let (run, to) = (large(), store.at("large"));
    let done =
        store.ended(&server, &["archive", run.to_str().unwrap(), "--to", &to, "--raw", "spans"]);
    assert_eq!(done.code, 0, "{}", done.err);
    // An object of 8 MiB or more is sent in parts.
    let listed =
        store.rows(&server, &to, "SELECT sum(length(name)), min(name), max(name) FROM spans");
    assert_eq!(listed, rows(run, "SELECT sum(length(name)), min(name), max(name) FROM spans"));
    let checked = store.ended(&server, &["archive", "--check", &to]);
    assert_eq!((checked.code, &*checked.out), (0, ""));
    let list = store.ended(&server, &["archive", "--list", &to]);
    let bytes = list.out.lines().nth(1).unwrap().split_whitespace().rev().nth(1).unwrap();
    assert!(bytes.parse::<u64>().unwrap() > 9 << 20, "{}", list.out);
}

/// Returns a run with a table of 10 MB: names that do not compress.
fn large() -> &'static Path {
    static LARGE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, run) = LARGE.get_or_init(|| {
        let directory = TempDir::new().unwrap();
        let mut state = 1_u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'0' + (state >> 58) as u8)
        };
        let mut events = Vec::new();
        for at in 0..4500 {
            let name: String = (0..3000).map(|_| letter()).collect();
            events.push(serde_json::json!({
                "ph": "X", "pid": 0, "tid": 1, "ts": 10 * at, "dur": 8, "cat": "cpu_op", "name": name,
            }));
        }
        let trace = directory.path().join("trace.json");
        let text = serde_json::json!({ "traceEvents": events }).to_string();
        std::fs::write(&trace, text).unwrap();
        let run = directory.path().join("large");
        tprof_import::import(&[trace], &run, &tprof_import::Options::new("test")).unwrap();
        (directory, run)
    });
    run
}

fn a_missing_object_is_an_error(store: &Store) {
    let Some(server) = (store.start)() else { return };
    let (run, to) = (runs().run(), store.at("less"));
    let done = store.ended(&server, &["archive", run.to_str().unwrap(), "--to", &to]);
    assert_eq!(done.code, 0, "{}", done.err);
    let objects = (store.objects)(server.port, "less/rank_kernels/");
    (store.delete)(server.port, &objects[0]);
    let failed = store.ended(&server, &[&to, SUMS]);
    assert_eq!((failed.code, &*failed.out), (1, ""), "{}", failed.err);
    assert!(failed.err.contains("cannot read an object of an archive"), "{}", failed.err);
    assert!(failed.err.contains(&objects[0]) && !failed.err.contains('<'), "{}", failed.err);
    let checked = store.ended(&server, &["archive", "--check", &to]);
    assert!(checked.code == 1 && checked.out.contains("missing"), "{}", checked.out);
}

fn a_missing_bucket_is_named(store: &Store) {
    let Some(server) = (store.start)() else { return };
    let run = runs().run();
    let to = format!("{}://nobody/a", store.scheme);
    let archived = store.ended(&server, &["archive", run.to_str().unwrap(), "--to", &to]);
    let queried = store.ended(&server, &[&to, "SELECT 1 FROM runs"]);
    for ended in [archived, queried] {
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("there is no bucket `nobody`"), "{}", ended.err);
    }
}

fn a_missing_server_is_named(store: &Store) {
    let (run, to) = (runs().run(), store.at("a"));
    let ended = store.alone(&["archive", run.to_str().unwrap(), "--to", &to], Vec::new());
    assert!(ended.err.contains(&format!("cannot reach the store of {to}")), "{}", ended.err);
}

fn nothing_secret_is_sent_without_tls(store: &Store) {
    let to = store.at("a");
    let ended = store.alone(&["archive", "--list", &to], (store.without_tls)());
    assert!(ended.err.contains("is without TLS"), "{}", ended.err);
}

fn without_credentials_their_variables_are_named(store: &Store) {
    let (run, to) = (runs().run(), store.at("a"));
    let words = ["archive", run.to_str().unwrap(), "--to", &to];
    let ended = store.alone(&words, (store.without_credentials)());
    assert!(ended.err.contains(&format!("no credentials for {to}")), "{}", ended.err);
    assert!(ended.err.contains(store.access), "{}", ended.err);
}

#[test]
fn errors_about_unusable_credentials_do_not_contain_them() {
    let words = ["archive", "--list", "az://jobs/a"];
    let of_azure =
        |name, value: &str| azurite::STORE.alone(&words, vec![(name, Some(value.into()))]);
    let connection = "AZURE_STORAGE_CONNECTION_STRING";
    let wrong = of_azure(connection, &format!("AccountKey={}", azurite::STORE.secret));
    assert!(wrong.err.contains("cannot be used"), "{}", wrong.err);
    assert!(wrong.err.contains("it has neither AccountName nor BlobEndpoint"), "{}", wrong.err);
    let wrong =
        of_azure(connection, &format!("AccountName=a;AccountKey=!{}", azurite::STORE.secret));
    assert!(wrong.err.contains("cannot be used"), "{}", wrong.err);
    let words = ["archive", "--list", "gs://jobs/a"];
    let of_google = |name, value: String| {
        let emulator = ("STORAGE_EMULATOR_HOST", None);
        fake_gcs::STORE.alone(&words, vec![emulator, (name, Some(value))])
    };
    let key = format!("\"{}\"", fake_gcs::STORE.secret);
    let wrong = of_google("GOOGLE_SERVICE_ACCOUNT_KEY", key);
    assert!(wrong.err.contains("cannot be used"), "{}", wrong.err);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credentials.json");
    let secret = fake_gcs::STORE.secret;
    std::fs::write(&file, format!(r#"{{"type":"external_account","secret":"{secret}"}}"#)).unwrap();
    let wrong = of_google("GOOGLE_APPLICATION_CREDENTIALS", file.display().to_string());
    assert!(wrong.err.contains("is neither service_account nor"), "{}", wrong.err);
}

#[test]
fn errors_about_an_unknown_key_do_not_contain_it() {
    let store = &azurite::STORE;
    let Some(server) = (store.start)() else { return };
    let run = runs().run();
    let other = "b3RoZXItcm9ja2V0";
    for words in [
        &["archive", run.to_str().unwrap(), "--to", "az://jobs/a"][..],
        &["az://jobs/a", "SELECT 1 FROM runs"],
    ] {
        let mut command = store.at_port(server.port, words);
        let refused = of(command.env("AZURE_STORAGE_KEY", other).output().unwrap());
        assert_eq!((refused.code, &*refused.out), (1, ""), "{}", refused.err);
        assert!(refused.err.contains("the store refuses to"), "{}", refused.err);
        assert!(!refused.err.contains(other), "{}", refused.err);
    }
}

#[test]
fn a_connection_string_suffices_for_azure() {
    let store = &azurite::STORE;
    let Some(server) = (store.start)() else { return };
    let with = |text: String| {
        let mut command = store.at_port(server.port, &["archive", "--list", "az://jobs/a"]);
        // The other variables name another account. They are not read.
        command.env("AZURE_STORAGE_ACCOUNT", "other").env("AZURE_STORAGE_KEY", "b3RoZXI=");
        of(command.env("AZURE_STORAGE_CONNECTION_STRING", text).output().unwrap())
    };
    let (account, endpoint) = (azurite::ACCOUNT, azurite::endpoint(server.port));
    for access in [
        format!("AccountName={account};AccountKey={}", store.secret),
        format!("SharedAccessSignature={}", azurite::token()),
    ] {
        let listed = with(format!("{access};BlobEndpoint={endpoint};"));
        assert!(listed.code == 0 && listed.err.contains("has no run"), "{}", listed.err);
    }
    let refused =
        with(format!("SharedAccessSignature={}x;BlobEndpoint={endpoint}", azurite::token()));
    assert!(refused.code == 1 && refused.err.contains("the store refuses"), "{}", refused.err);
    let signature = azurite::token();
    let signature = signature.rsplit_once("sig=").unwrap().1;
    assert!(!refused.err.contains(signature), "{}", refused.err);
}
