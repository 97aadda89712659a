//! Checks what tprof can record of a program.

use tprof_ui::errors::reason;

use super::check::{Check, Verdict};
use super::gpu;
use crate::launch;
use crate::launch::failures::not_run;

use object::{Object, ObjectSection, ReadCache};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tprof_symbols::elf;
use tprof_unwind::unwind_table;

/// Largest number of nested `#!` interpreters that the kernel follows.
const MOST_INTERPRETERS: usize = 5;

pub fn checks(command: &OsStr) -> anyhow::Result<Vec<Check>> {
    let path = launch::find(command).map_err(|why| not_run(command, why))?;
    let mut checks = vec![Check::new("file", Verdict::Ok, path.display().to_string())];
    let mut program = path.clone();
    for _ in 0..MOST_INTERPRETERS {
        let Some(interpreter) = interpreter(&program) else { break };
        let found = format!("a script, run by {}", interpreter.display());
        checks.push(Check::new("script", Verdict::Note, found));
        program = interpreter;
    }
    // In `#!/usr/bin/env python3`, env finds the program.
    if let Some(found) = through_env(&path) {
        checks.push(Check::new("script", Verdict::Note, format!("which is {}", found.display())));
        program = found;
    }
    match elf::blind_reason(&program) {
        Some(("everything", why)) => {
            checks.push(
                Check::new("hooks", Verdict::No, why)
                    .hint("a dynamically linked 64-bit build of the program"),
            );
            return Ok(checks);
        }
        Some((what, why)) => checks.push(
            Check::new("hooks", Verdict::Part, format!("{what} cannot be recorded: {why}"))
                .hint("a build that uses the system's malloc"),
        ),
        None => checks.push(Check::new("hooks", Verdict::Ok, "allocations can be recorded")),
    }
    checks.push(stacks(&program));
    checks.push(symbols(&program));
    let needed = elf::inspect(&program).map(|facts| facts.needed).unwrap_or_default();
    checks.extend(gpu::program(&program, &needed));
    Ok(checks)
}

/// Returns the program that a `#!` line names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    first_line(path).and_then(|words| Some(PathBuf::from(words.into_iter().next()?)))
}

/// Returns the program that env finds for `#!/usr/bin/env NAME`.
fn through_env(path: &Path) -> Option<PathBuf> {
    let words = first_line(path)?;
    let mut words = words.iter();
    (Path::new(words.next()?).file_name()? == "env").then_some(())?;
    let name = words.find(|word| !word.as_bytes().starts_with(b"-"))?;
    launch::find(name).ok()
}

fn first_line(path: &Path) -> Option<Vec<std::ffi::OsString>> {
    // The kernel reads as many bytes of a `#!` line.
    let mut head = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    Some(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

fn stacks(program: &Path) -> Check {
    const HINT: &str = "a build with -fasynchronous-unwind-tables or -fno-omit-frame-pointer";
    match unwind_table::compile(program) {
        Ok(table) if !table.rows.is_empty() => {
            Check::new("stacks", Verdict::Ok, format!("unwind tables, {} rows", table.rows.len()))
        }
        Ok(table) => {
            let why = table.empty.unwrap_or("none");
            Check::new("stacks", Verdict::Part, format!("no unwind tables: {why}")).hint(HINT)
        }
        Err(e) => Check::new("stacks", Verdict::Part, format!("unwind tables: {e}")).hint(HINT),
    }
}

fn symbols(program: &Path) -> Check {
    let unread = |why: String| Check::new("symbols", Verdict::Part, why);
    let cache = match File::open(program) {
        Ok(file) => ReadCache::new(file),
        Err(e) => return unread(reason(&e)),
    };
    let file = match object::File::parse(&cache) {
        Ok(file) => file,
        Err(e) => return unread(e.to_string()),
    };
    let full = |name| file.section_by_name(name).is_some_and(|section| section.size() > 0);
    if full(".debug_line") {
        return Check::new("symbols", Verdict::Ok, "functions, files and lines");
    }
    if full(".symtab") {
        return Check::new("symbols", Verdict::Part, "functions, without files and lines")
            .hint("a build with -g1 or more");
    }
    let names = file.dynamic_symbols().count();
    Check::new("symbols", Verdict::Part, format!("stripped, except {names} exported names"))
        .hint("an unstripped build, or the package of debug symbols")
}
