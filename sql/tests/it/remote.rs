//! Tests `tprof sql --remote`, which sends queries to a Spark Connect server. The server is Sail,
//! on loopback. Most tests compare its results with those of the engine within tprof.
//!
//! `TPROF_TEST_SAIL` is the path of Sail's program; by default it is the one that
//! `scripts/test-readers.sh` has fetched. Without a program, the tests that need it are skipped.

mod broken;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tprof_export::Options;
use tprof_tables::{VIEWS, catalogue};
use tprof_trace::RunDir;

use crate::archive::archive;
use crate::many_ranks::many_ranks;
use crate::runs::{Ended, ended, of, program, runs};
use crate::servers::{Server, fetched, free_port, skip};
use crate::views::traces;

/// A running Sail server.
struct Sail(Server);

impl Sail {
    /// Starts a server on a free port; `None` if Sail isn't there.
    fn start() -> Option<Sail> {
        Sail::start_at(free_port())
    }

    fn start_at(port: u16) -> Option<Sail> {
        let Some(sail) = fetched("TPROF_TEST_SAIL", "sail/bin/sail") else {
            skip("Sail");
            return None;
        };
        Some(Sail(Server::start_at(port, |port| {
            let mut command = Command::new(sail);
            command.args(["spark", "server", "--ip", "127.0.0.1", "--port", port]);
            command
        })))
    }

    /// Returns `tprof sql` with these arguments and this server.
    fn program(&self, arguments: &[&str]) -> Command {
        with_server(self.0.port, arguments)
    }

    /// Runs `tprof sql` with these arguments and this server to its end.
    fn ended(&self, arguments: &[&str]) -> Ended {
        of(self.program(arguments).output().unwrap())
    }

    /// Returns the result of a query of a data set on the server, as CSV with its header.
    fn csv(&self, set: &Path, query: &str) -> String {
        let ended = self.ended(&[set.to_str().unwrap(), query, "--format=csv"]);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{query}");
        ended.out
    }
}

/// Returns the server that all tests share, except those that kill theirs; `None` if Sail isn't
/// there.
fn server() -> Option<&'static Sail> {
    static SERVER: OnceLock<Option<Sail>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let server = Sail::start()?;
        // A static is never dropped, so `atexit` ends the server.
        extern "C" fn end() {
            if let Some(Some(server)) = SERVER.get() {
                let _ = kill(Pid::from_raw(server.0.child.id() as i32), Signal::SIGKILL);
            }
        }
        at_exit(end);
        Some(server)
    });
    server.as_ref()
}

/// Has a function called when the test program exits.
#[allow(unsafe_code, reason = "the standard library has no function for this")]
fn at_exit(end: extern "C" fn()) {
    // SAFETY: `end` has the type that `atexit` expects, and is in this program as long as it runs.
    assert_eq!(unsafe { libc::atexit(end) }, 0);
}

/// Returns `tprof sql` with these arguments and the server at a port of loopback.
fn with_server(port: u16, arguments: &[&str]) -> Command {
    let remote = format!("--remote=sc://127.0.0.1:{port}");
    let mut command = program(arguments);
    command.arg(remote).env_remove("SPARK_CONNECT_AUTHENTICATE_TOKEN");
    command
}

/// Exports a run as a data set of Parquet files. With `files_of_ranks`, files are compacted, each
/// with this many ranks at most; otherwise each rank has a directory.
fn export_set(run: &Path, to: &Path, files_of_ranks: Option<usize>) {
    let options = Options { output: Some(to.to_owned()), files_of_ranks, ..Options::default() };
    tprof_tables::parquet::export(&RunDir::open(run).unwrap(), &options).unwrap();
}

/// Returns the lines of CSV without the header, sorted, because engines return rows in different
/// orders.
fn sorted_rows(csv: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = csv.lines().skip(1).collect();
    lines.sort_unstable();
    lines
}

/// Returns the result of a query by the engine within tprof, as CSV with its header.
fn embedded(set: &Path, query: &str) -> String {
    let ended = ended([set.to_str().unwrap(), query, "--format=csv"]);
    assert_eq!((ended.code, &*ended.err), (0, ""), "{query}");
    ended.out
}

/// Returns the names and types of the columns of a Parquet file.
fn column_types(file: &Path) -> Vec<(String, String)> {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let file = std::fs::File::open(file).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let fields = reader.schema().fields().iter();
    fields.map(|field| (field.name().clone(), field.data_type().to_string())).collect()
}

#[test]
fn every_table_and_view_is_the_same_as_without_a_server() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    for run in traces(directory.path()) {
        let name = run.file_name().unwrap().to_str().unwrap();
        let all = directory.path().join(format!("{name}-set"));
        export_set(&run, &all, Some(128));
        let names: Vec<&str> = catalogue().into_iter().map(|table| table.name).collect();
        let names: Vec<&str> =
            names.into_iter().chain(VIEWS.iter().map(|view| view.name)).collect();
        let queries: Vec<String> =
            names.iter().map(|name| format!("SELECT * FROM {name}")).collect();
        let (there, here) =
            (server.csv(&all, &queries.join("; ")), embedded(&all, &queries.join("; ")));
        // An empty line separates results.
        let (there, here): (Vec<_>, Vec<_>) =
            (there.split("\n\n").collect(), here.split("\n\n").collect());
        assert_eq!((there.len(), here.len()), (names.len(), names.len()));
        for ((name, there), here) in names.iter().zip(there).zip(here) {
            assert_eq!(there.lines().next(), here.lines().next(), "{}: {name}", run.display());
            assert!(sorted_rows(there) == sorted_rows(here), "{}: {name}", run.display());
        }
    }
}

#[test]
fn columns_have_the_types_that_they_have_without_a_server() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (there, here) = (directory.path().join("there"), directory.path().join("here"));
    let set = runs().set();
    let set = set.to_str().unwrap();
    for name in catalogue().iter().map(|table| table.name).chain(VIEWS.iter().map(|view| view.name))
    {
        let query = format!("SELECT * FROM {name} LIMIT 1");
        let to = |file: &Path| format!("--output={}", file.display());
        assert_eq!(server.ended(&[set, &query, "--format=parquet", &to(&there)]).code, 0, "{name}");
        assert_eq!(ended([set, &query, "--format=parquet", &to(&here)]).code, 0, "{name}");
        assert_eq!(column_types(&there), column_types(&here), "{name}");
    }
}

#[test]
fn a_directory_for_each_rank_is_one_table() {
    let Some(server) = server() else { return };
    let set = runs().set();
    let query = "SELECT rank, count(*) AS kernels, sum(duration_ns) AS ns, min(name) AS first \
                 FROM kernels GROUP BY rank ORDER BY rank";
    assert_eq!(server.csv(&set, query), embedded(&set, query));
    // Ranks are numbers, and unknown values are null.
    let query = "SELECT max(rank) AS last, count(*) AS n, count(step) AS known FROM kernels";
    assert_eq!(server.csv(&set, query), embedded(&set, query));
}

#[test]
fn results_keep_their_order_in_every_format() {
    let Some(server) = server() else { return };
    let set = runs().set();
    let set = set.to_str().unwrap();
    let query = "SELECT rank, start_ns, name, CAST(NULL AS DOUBLE) AS nothing, duration_ns / 1e3 AS us \
                 FROM kernels ORDER BY start_ns DESC, rank, correlation LIMIT 3000";
    for format in ["table", "csv", "json", "arrow"] {
        let words = [set, query, "--format", format];
        let (there, here) = (server.program(&words).output(), program(words).output());
        let (there, here) = (there.unwrap(), here.unwrap());
        assert_eq!(there.status.code(), Some(0), "{}", String::from_utf8_lossy(&there.stderr));
        if format != "arrow" {
            assert!(there.stdout == here.stdout, "{format}");
        } else {
            assert!(there.stdout.len() > 3000 * 8);
        }
    }
    let empty = "SELECT rank, name FROM kernels WHERE rank = 99";
    assert_eq!(server.csv(set.as_ref(), empty), "rank,name\n");
}

#[test]
fn an_archive_contains_only_complete_runs() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("my archive"), directory.path().join("r3"));
    let to = path.to_str().unwrap();
    many_ranks(&runs().run(), &other, 3).unwrap();
    assert_eq!(archive(&runs().run(), to, &["--raw", "kernels"]).code, 0);
    assert_eq!(archive(&other, to, &[]).code, 0);
    // A third run has only one of its tables in the archive, as if archiving had been interrupted.
    let half = path.join("ranks/run=half-1");
    std::fs::create_dir(&half).unwrap();
    let whole = path.join("ranks").read_dir().unwrap().flatten().map(|entry| entry.path());
    let whole = whole.filter(|path| *path != half).find_map(|run| run.read_dir().unwrap().next());
    std::fs::copy(whole.unwrap().unwrap().path(), half.join("all-0.parquet")).unwrap();
    for query in [
        "SELECT run, count(*) AS ranks FROM ranks GROUP BY run ORDER BY run",
        "SELECT run, ranks, duration_ns FROM runs ORDER BY run",
        "SELECT run, rank, sum(total_ns) AS ns FROM rank_kernels GROUP BY run, rank ORDER BY run, rank",
    ] {
        let there = server.csv(&path, query);
        assert_eq!(there, embedded(&path, query), "{query}");
        assert!(there.lines().count() > 2, "{there}");
    }
    // The table `kernels` is missing in one run, `spans` in both.
    for (query, missing) in [
        ("SELECT count(*) AS n FROM kernels", "kernels of 1 of 2 runs"),
        ("SELECT count(*) AS n FROM spans", "spans of 2 of 2 runs"),
    ] {
        let there = server.ended(&[to, query, "--format=csv"]);
        let here = ended([to, query, "--format=csv"]);
        assert_eq!((there.code, &there.out), (0, &here.out), "{}", there.err);
        assert!(there.err.contains(missing), "{}", there.err);
    }
    // If an archive and a data set are named, each table has the rows of both.
    let set = runs().set();
    let query = "SELECT run, count(*) AS n FROM rank_summary GROUP BY run ORDER BY run";
    let words = [to, set.to_str().unwrap(), query, "--format=csv"];
    assert_eq!(server.ended(&words).out, ended(words).out);
}

#[test]
fn data_at_another_path_on_the_server_is_found() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (directory.path().join("here"), directory.path().join("there"));
    export_set(&runs().run(), &here, Some(128));
    std::fs::create_dir(&there).unwrap();
    // The table `spans` will be missing in the copy. So if a query for it fails, the server reads
    // the copy and not the original.
    for entry in here.read_dir().unwrap().flatten() {
        let _ = Command::new("cp").arg("-r").arg(entry.path()).arg(&there).status().unwrap();
    }
    let option = format!("--remote-data={}={}", here.display(), there.display());
    let query = "SELECT count(*) AS n FROM kernels";
    let here = here.to_str().unwrap();
    let expected = server.csv(here.as_ref(), query);
    std::fs::remove_dir_all(directory.path().join("there/spans")).unwrap();
    let named = server.ended(&[here, query, "--format=csv", &option]);
    assert_eq!((named.code, named.out), (0, expected), "{}", named.err);
    let missing = server.ended(&[here, "SELECT count(*) FROM spans", &option]);
    assert_eq!(missing.code, 1, "{}", missing.out);
    assert!(missing.err.contains("the server cannot read"), "{}", missing.err);
    assert!(missing.err.contains("--remote-data"), "{}", missing.err);
    let unused = server.ended(&[here, query, "--remote-data=/none=/other"]);
    assert_eq!(unused.code, 2, "{}", unused.err);
    assert!(unused.err.contains("--remote-data /none=… changes nothing"), "{}", unused.err);
}

#[test]
fn views_can_be_created_and_listed() {
    let Some(server) = server() else { return };
    let set = runs().set();
    let own = "CREATE VIEW slow AS SELECT rank, delay_ns FROM stragglers WHERE delay_ns > 0; \
               SELECT count(*) AS n FROM slow; \
               CREATE OR REPLACE VIEW breakdown AS SELECT 7 AS seven; SELECT * FROM breakdown";
    let here = embedded(&set, own);
    assert!(here.ends_with("\nseven\n7\n"), "{here}");
    assert_eq!(server.csv(&set, own), here);
    for query in ["SHOW TABLES", "DESCRIBE kernels", "DESCRIBE stragglers"] {
        assert_eq!(server.csv(&set, query), embedded(&set, query), "{query}");
    }
    let with =
        "WITH kernels AS (SELECT * FROM kernels WHERE rank = 1) SELECT count(*) AS n FROM kernels";
    assert_eq!(server.csv(&set, with), embedded(&set, with));
    // A session belongs to one command.
    let gone = server.ended(&[set.to_str().unwrap(), "SELECT * FROM slow"]);
    assert!(gone.code == 1 && gone.err.contains("there is no table `slow`"), "{}", gone.err);
}

#[test]
fn wrong_names_are_shown_with_a_suggestion() {
    let Some(server) = server() else { return };
    let set = runs().set();
    for (query, place, error, near) in [
        (
            "SELECT *\n FROM kernel",
            "2 |  FROM kernel\n  |       ^\n",
            "error: there is no table `kernel`\n",
            "`kernels`",
        ),
        (
            "SELECT rank, durations_ns FROM kernels",
            "",
            "error: there is no column `durations_ns`",
            "`duration_ns`",
        ),
        (
            "SELECT interval_union(start_ns, duration_ns) FROM kernels",
            "1 | SELECT interval_union(",
            "error: the server has no function `interval_union`, which is tprof's\n",
            "device_time",
        ),
        ("SELECT 1 +", "", "error: the query is not SQL\n", ""),
    ] {
        let ended = server.ended(&[set.to_str().unwrap(), query]);
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.starts_with(place), "{}", ended.err);
        assert!(ended.err.contains(error), "{}", ended.err);
        assert!(ended.err.contains(near), "{}", ended.err);
        assert!(ended.err.lines().count() <= 5, "{}", ended.err);
    }
}

#[test]
fn forbidden_statements_and_sources_are_refused_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new");
    let set = runs().set();
    let set = set.to_str().unwrap();
    // No server listens on this port. If tprof sent a request, the error would be that it can't
    // reach the server, as for the last query, which is allowed.
    let without_server =
        |arguments: &[&str]| of(with_server(free_port(), arguments).output().unwrap());
    for (query, why) in [
        (format!("COPY (SELECT 1) TO '{}'", new.display()), "COPY is refused"),
        (
            format!("CREATE TABLE t USING parquet LOCATION '{}'", new.display()),
            "CREATE TABLE is refused",
        ),
        (
            "WITH a AS (SELECT 1) INSERT INTO kernels SELECT * FROM a".into(),
            "INSERT INTO is refused",
        ),
        ("SELECT 1; DROP VIEW kernels".into(), "DROP VIEW is refused"),
        ("SET spark.sql.ansi.enabled = false".into(), "SET is refused"),
        ("SELECT reflect('java.lang.System', 'exit', 1)".into(), "`reflect` is refused"),
        ("SELECT * FROM parquet.`/etc`".into(), "there is no table `parquet./etc`"),
        ("SELECT * FROM read_files('/etc')".into(), "`read_files` is refused"),
        ("CREATE VIEW kernels AS SELECT 1".into(), "cannot reach"),
    ] {
        let ended = without_server(&[set, &query]);
        assert_eq!((ended.code, &*ended.out), (1, ""), "{query}: {}", ended.err);
        assert!(ended.err.contains(why), "{query}: {}", ended.err);
    }
    let run = runs().run();
    let run = without_server(&[run.to_str().unwrap(), "SELECT 1 FROM runs"]);
    assert_eq!(run.code, 2);
    for part in ["cannot read the run", "tprof export", "--to parquet", "tprof archive"] {
        assert!(run.err.contains(part), "{}", run.err);
    }
    for option in ["--memory-limit=2G", "--threads=1"] {
        let ended = without_server(&[set, "SELECT 1", option]);
        assert!(ended.code == 2 && ended.err.contains("does not apply"), "{}", ended.err);
    }
    assert!(!new.exists());
}

#[test]
fn comments_and_texts_cannot_make_a_server_read_other_files() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret.txt");
    std::fs::write(&secret, "kept by itself").unwrap();
    let path = format!("text.`{}`", secret.display());
    let set = runs().set();
    // If tprof sent these texts as typed, the server would read the file.
    for text in [
        format!("SELECT * FROM {path}"),
        format!("SELECT * -- \rFROM {path}"),
        format!("SELECT '\\', ', t.* FROM {path} t -- '"),
        format!("SELECT 1 -- \\\n AS a, t.* FROM {path} t"),
        format!("SELECT /*+ h('*/ 1, ') */ t.* FROM {path} t -- '"),
        format!("WITH `text.{}` AS (SELECT 1) SELECT * FROM {path}", secret.display()),
        format!("CREATE VIEW v AS SELECT 1 AS a -- \r, t.* FROM {path} t\n; SELECT * FROM v"),
    ] {
        let ended = server.ended(&[set.to_str().unwrap(), &text, "--format=csv"]);
        assert!(!ended.out.contains("kept by itself"), "{text:?}: {}", ended.out);
    }
    let query = "SELECT 'it''s', '\\' FROM kernels LIMIT 1";
    assert_eq!(server.csv(&set, query).lines().nth(1), Some("it's,\\"));
}

#[test]
fn columns_are_listed_as_without_a_server() {
    let Some(server) = server() else { return };
    let set = runs().set();
    for query in ["SHOW COLUMNS FROM kernels", "SHOW COLUMNS IN stragglers"] {
        let there = server.csv(&set, query);
        assert_eq!(there, embedded(&set, query), "{query}");
        assert_eq!(
            there,
            embedded(
                &set,
                &query
                    .replace("SHOW COLUMNS FROM", "DESCRIBE")
                    .replace("SHOW COLUMNS IN", "DESCRIBE")
            )
        );
    }
    let own = "CREATE VIEW slow AS SELECT rank, delay_ns FROM stragglers; SHOW COLUMNS FROM slow; DESCRIBE slow";
    let there = server.csv(&set, own);
    let names = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once(',').unwrap_or((line, "")).0.to_owned()).collect()
    };
    assert_eq!(names(&there), names(&embedded(&set, own)));
    assert!(there.contains("delay_ns,int64,"), "{there}");
    let part = server.ended(&[set.to_str().unwrap(), "SHOW COLUMNS FROM kernels LIKE 'r%'"]);
    assert!(part.code == 1 && part.err.contains("with a choice is refused"), "{}", part.err);
}

#[test]
fn a_repeated_data_set_counts_once() {
    let Some(server) = server() else { return };
    let set = runs().set();
    let again = format!("{}/.", set.display());
    let query = "SELECT count(*) AS n FROM kernels";
    let expected = embedded(&set, query);
    let words = [set.to_str().unwrap(), &again, query, "--format=csv"];
    for ended in [server.ended(&words), ended(words)] {
        assert_eq!((ended.code, &ended.out), (0, &expected), "{}", ended.err);
        assert!(ended.err.contains("is named twice, and counts once"), "{}", ended.err);
    }
}

#[test]
fn a_column_in_double_quotes_is_refused_and_not_a_text() {
    let Some(server) = server() else { return };
    let set = runs().set();
    for query in ["SELECT \"rank\" FROM kernels", "SELECT rank FROM ranks WHERE \"Host\" = 'a'"] {
        let refused = server.ended(&[set.to_str().unwrap(), query]);
        assert_eq!((refused.code, &*refused.out), (1, ""), "{}", refused.err);
        assert!(refused.err.contains("as a text, not as a column"), "{}", refused.err);
    }
    let texts = "SELECT `rank`, \"it's\" AS text, 'rank' AS other FROM ranks ORDER BY 1 LIMIT 1";
    assert_eq!(server.csv(&set, texts), "rank,text,other\n0,it's,rank\n");
}

#[test]
fn two_columns_of_one_name_are_refused_for_json() {
    let Some(server) = server() else { return };
    let set = runs().set();
    let set = set.to_str().unwrap();
    let query = "SELECT a.rank, b.rank FROM ranks a JOIN ranks b ON a.rank = b.rank";
    for format in ["json", "csv"] {
        for ended in [
            server.ended(&[set, query, "--format", format]),
            ended([set, query, "--format", format]),
        ] {
            match format {
                "json" => {
                    assert_eq!((ended.code, &*ended.out), (1, ""), "{}", ended.err);
                    assert!(ended.err.contains("two columns are named `rank`"), "{}", ended.err);
                }
                _ => assert!(
                    ended.code == 0 && ended.out.starts_with("rank,rank\n"),
                    "{}",
                    ended.err
                ),
            }
        }
    }
}
