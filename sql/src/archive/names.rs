//! Names of the objects in an archive.
//!
//! ```text
//! kernels/run=r1-0f3a…/ranks-0-127-9c41….parquet   a part of a table of a run
//! _runs/r1-0f3a….json                              the commit file of a run
//! ```
//!
//! The name of a part ends with a hash of its bytes, so a name always stands for the same content.
//! Archiving a run again, or by two archivers at once, can therefore not change an object that a
//! reader has found.

/// Directory of the commit files. Query engines skip names that begin with an underscore.
pub const COMMITS: &str = "_runs";
/// Longest name of a run within an ID, in bytes.
const LONGEST: usize = 100;

/// Replaces characters of a name that are special in some store, shell or query engine.
pub fn plain(name: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => letter,
        _ => '-',
    };
    let name: String = name.chars().map(plain).take(LONGEST).collect();
    // Query engines skip names that begin with these.
    let name = name.trim_start_matches(['.', '_']);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

/// Whether a text can be the ID of a run: it must be a plain file name, which cannot lead to
/// another directory.
pub fn is_id(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
}

/// Returns the path of a run's commit file.
pub fn commit(id: &str) -> String {
    format!("{COMMITS}/{id}.json")
}

/// Returns the path of a part of a table.
pub fn part(table: &str, id: &str, stem: &str, hash: &str) -> String {
    format!("{table}/run={id}/{}-{hash}.parquet", plain(stem))
}

/// Returns table and run, if the path is a part of a table.
pub fn table_and_run(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.split('/');
    let (table, run, file) = (parts.next()?, parts.next()?, parts.next()?);
    let run = run.strip_prefix("run=")?;
    (parts.next().is_none() && file.ends_with(".parquet")).then_some((table, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(plain("my run=1/ä%"), "my-run-1---");
        assert_eq!(plain(".._x"), "x");
        assert_eq!(plain(""), "run");
        assert_eq!(plain(&"x".repeat(300)).len(), LONGEST);
    }

    #[test]
    fn an_id_is_one_plain_name() {
        assert!(is_id("r1-0f3a5b7c9d11") && is_id("_.-"));
        for text in ["", "..", "a/b", "a\\b", "a b", "../_runs/r1"] {
            assert!(!is_id(text), "{text}");
        }
    }

    #[test]
    fn a_part_has_its_table_and_run_in_its_path() {
        let path = part("kernels", "r1-ab", "ranks-0-127", "0123");
        assert_eq!(path, "kernels/run=r1-ab/ranks-0-127-0123.parquet");
        assert_eq!(table_and_run(&path), Some(("kernels", "r1-ab")));
        assert_eq!(table_and_run("kernels/run=r1/a/b.parquet"), None);
        assert_eq!(table_and_run("photos/a.parquet"), None);
        assert_eq!(table_and_run("_runs/r1-ab.json"), None);
    }
}
