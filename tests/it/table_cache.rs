//! Unwind tables and symbols that are cached between runs change neither stacks nor the job.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tprof_tests::{
    EXACT, Job, Kind, Scratch, build, need_some, program, tprof, traced, traced_job,
};

/// Builds a victim whose run stores a table in the cache. musl's loader finds no frame information,
/// so tprof makes the tables itself, and this program has so much that the table is stored.
fn waiting() -> Result<PathBuf, String> {
    build("many_sites", Kind::Musl)
}

fn victim(program: &Path, cache: &Path) -> Job {
    Job::new(program).env("XDG_CACHE_HOME", cache)
}

/// Returns the stacks of all allocations with their numbers, without the pid.
fn stacks(run: &Path) -> Vec<String> {
    let job = tprof(["export", "--to", "folded", "-o", "-", "--weight", "count"]).arg(run);
    let outcome = job.run_in(run.parent().unwrap()).expect_code(0);
    let line = |line: &str| match (line.find(" ["), line.find("];")) {
        (Some(from), Some(to)) => format!("{}{}", &line[..from], &line[to + 1..]),
        _ => line.to_owned(),
    };
    let mut lines: Vec<_> = outcome.stdout.lines().map(line).collect();
    lines.sort();
    lines
}

fn cached_files(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("tprof/tables")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn stacks_are_the_same_with_and_without_an_earlier_runs_tables() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    let program = need_some!(waiting());
    let native = victim(&program, &cache).run_in(scratch.cwd());
    let run = |name: &str, options: &[&str]| {
        let run = scratch.join(name);
        let options = [EXACT, options].concat();
        let outcome = traced_job(&victim(&program, &cache), &options, &run).run_in(scratch.cwd());
        assert!(outcome == native, "{name}: {outcome:?} instead of {native:?}");
        stacks(&run)
    };
    let without = run("without", &["--table-cache", "off"]);
    let sites = without.iter().filter(|line| line.contains(";victim_site_"));
    assert_eq!(sites.filter(|line| line.ends_with(" 2")).count(), 4096);
    assert_eq!(cached_files(&cache).len(), 0, "files were cached although the cache is off");
    let first = run("first", &[]);
    assert!(!cached_files(&cache).is_empty());
    for path in cached_files(&cache) {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let second = run("second", &[]);
    assert_eq!(without, first);
    assert_eq!(without, second);
}

#[test]
fn walks_with_and_without_tables_find_the_same_as_whole_walks() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    for name in ["many_sites", "exceptions"] {
        let found = scratch.join(format!("found-{name}"));
        let job = victim(&program(name), &cache).env("TPROF_TEST_STACKS", &found);
        traced_job(&job, EXACT, &scratch.join(name)).run_in(scratch.cwd()).expect_code(0);
        let found = fs::read_to_string(&found).unwrap();
        assert!(found.contains("checked\n"), "{name}: {found:?}");
        assert!(!found.contains("differs"), "{name}: {found}");
    }
}

/// Debug information contains names and paths of the job.
#[test]
fn names_are_cached_for_later_runs_except_by_a_redacted_run() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    let job = victim(&program("exceptions"), &cache);
    let run = |name: &str, options: &[&str]| {
        let run = scratch.join(name);
        let options = [EXACT, options].concat();
        traced_job(&job, &options, &run).run_in(scratch.cwd()).expect_code(0);
        (!options.contains(&"--redact")).then(|| stacks(&run))
    };
    let places = || {
        let is_of_places = |path: &PathBuf| path.extension().is_some_and(|end| end == "places");
        cached_files(&cache).into_iter().filter(is_of_places).collect::<Vec<_>>()
    };
    run("redacted", &["--redact"]);
    assert_eq!(places(), Vec::<PathBuf>::new());
    let first = run("first", &[]).unwrap();
    let kept = places();
    assert!(!kept.is_empty());
    let content: Vec<Vec<u8>> = kept.iter().map(|path| fs::read(path).unwrap()).collect();
    let holds =
        |name: &[u8]| content.iter().any(|file| file.windows(name.len()).any(|w| w == name));
    assert!(holds(b"exceptions.cpp"));
    assert_eq!(run("second", &[]).unwrap(), first);
}

#[test]
fn a_cache_that_cannot_be_used_changes_nothing() {
    let scratch = Scratch::new();
    let elsewhere = scratch.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let linked = scratch.join("linked");
    fs::create_dir_all(linked.join("tprof")).unwrap();
    symlink(&elsewhere, linked.join("tprof/tables")).unwrap();
    let open = scratch.join("open");
    fs::create_dir_all(open.join("tprof/tables")).unwrap();
    fs::set_permissions(open.join("tprof/tables"), Permissions::from_mode(0o777)).unwrap();
    let file = scratch.write("file", "text");
    let program = need_some!(waiting());
    for (name, cache) in [("linked", linked), ("open", open.clone()), ("file", file)] {
        let native = victim(&program, &cache).run_in(scratch.cwd());
        let run = scratch.join(format!("run-{name}"));
        let outcome = traced_job(&victim(&program, &cache), EXACT, &run).run_in(scratch.cwd());
        assert!(outcome == native, "{name}: {outcome:?} instead of {native:?}");
        assert!(!stacks(&run).is_empty(), "{name}");
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(cached_files(&open).len(), 0);
}

#[test]
fn a_variable_or_a_key_switches_the_cache_off() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    let program = need_some!(waiting());
    let job = victim(&program, &cache).env("TPROF_TABLE_CACHE", "off");
    assert_eq!(traced(&job, EXACT, &scratch).outcome.code, Some(0));
    let folder = scratch.join("with-file");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("tprof.toml"), "table-cache = 'off'\n").unwrap();
    let run = scratch.join("run-with-file");
    traced_job(&victim(&program, &cache), EXACT, &run).run_in(&folder).expect_code(0);
    assert_eq!(cached_files(&cache).len(), 0);
}

/// Stacks are the same with the loader's help and with tables. Rows found without a table are not
/// stored in the cache.
#[test]
fn stacks_are_the_same_by_tables_and_without() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    let by_site = |program: &Path, name: &str| {
        let run = scratch.join(name);
        traced_job(&victim(program, &cache), EXACT, &run).run_in(scratch.cwd()).expect_code(0);
        let of_sites = |line: &String| Some(line[line.find("main;victim_site_")?..].to_owned());
        stacks(&run).iter().filter_map(of_sites).collect::<Vec<_>>()
    };
    let found = by_site(&program("many_sites"), "found");
    assert_eq!(found.len(), 4096);
    let waiting = need_some!(waiting());
    assert_eq!(found, by_site(&waiting, "waited"));
}
