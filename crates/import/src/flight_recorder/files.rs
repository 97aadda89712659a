//! Finds dumps by their content, and reads them.

use super::dump::{self, Dump};
use crate::pickle;
use crate::source;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Largest dump, in bytes. A thousand operations with stacks take less than 1 MiB.
const MAX_PICKLE: u64 = 256 << 20;
/// Largest dump as JSON, whose values take ten times its size.
const MAX_JSON: u64 = 64 << 20;
/// Bytes by which a dump is recognized.
const LOOKED_AT: u64 = 64 << 10;

/// Why dumps can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpsError {
    /// The operating system reported an error.
    #[error("`{}` cannot be read: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// None of the dumps can be read.
    #[error("`{}` cannot be read as a dump of PyTorch's Flight Recorder: {why}", path.display())]
    NotADump {
        /// The first file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The name of a file doesn't end with a rank.
    #[error("the name of `{}` does not end with a rank", path.display())]
    NoRank {
        /// The file whose name has no rank.
        path: PathBuf,
    },
    /// Files in a directory have different names before the rank.
    #[error("`{}` has dumps with several names: {}", path.display(), prefixes.join(", "))]
    SeveralNames {
        /// The directory that holds the dumps.
        path: PathBuf,
        /// The names without ranks.
        prefixes: Vec<String>,
    },
}

/// The dump of a rank, or why it can't be read.
pub(super) struct RankDump {
    pub rank: u32,
    pub file: String,
    pub time_unix_ns: Option<u64>,
    pub dump: Result<Dump, String>,
}

/// Whether a path is a dump, or a directory with dumps that isn't a run.
pub fn has_dumps(path: &Path) -> bool {
    match path.is_dir() {
        true => found(path).is_ok_and(|files| !files.is_empty()),
        false => is_dump(path),
    }
}

/// Reads a dump, or all dumps in a directory, in the order of their ranks.
pub(super) fn read(path: &Path) -> Result<Vec<RankDump>, DumpsError> {
    let failed = |source| DumpsError::Io { path: path.to_owned(), source };
    let files = match path.is_dir() {
        true => found(path).map_err(failed)?,
        false => vec![path.to_owned()],
    };
    let (mut by_rank, mut prefixes) = (BTreeMap::new(), BTreeSet::new());
    for file in files {
        let (prefix, rank) = rank_of(&file).ok_or(DumpsError::NoRank { path: file.clone() })?;
        prefixes.insert(prefix);
        by_rank.insert(rank, file);
    }
    if prefixes.len() > 1 {
        let prefixes = prefixes.into_iter().collect();
        return Err(DumpsError::SeveralNames { path: path.to_owned(), prefixes });
    }
    let dumps: Vec<RankDump> = by_rank.iter().map(|(rank, file)| of_rank(*rank, file)).collect();
    let why = match dumps.first() {
        Some(RankDump { dump: Err(why), .. }) if dumps.iter().all(|of| of.dump.is_err()) => why,
        _ => return Ok(dumps),
    };
    let path = by_rank.into_values().next().unwrap_or_default();
    Err(DumpsError::NotADump { path, why: why.clone() })
}

fn of_rank(rank: u32, path: &Path) -> RankDump {
    let modified = fs::metadata(path).and_then(|about| about.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let dump = match contents(path, MAX_PICKLE) {
        Err(error) => Err(error.to_string()),
        Ok(bytes) if bytes.len() as u64 > limit(&bytes) => {
            Err(format!("it has more than {} MiB", limit(&bytes) >> 20))
        }
        Ok(bytes) => dump::read(&bytes),
    };
    RankDump {
        rank,
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        time_unix_ns: since.and_then(|since| since.as_nanos().try_into().ok()),
        dump,
    }
}

fn limit(bytes: &[u8]) -> u64 {
    if pickle::is_pickle(bytes) { MAX_PICKLE } else { MAX_JSON }
}

/// Returns the text of a file, plain or compressed, up to one byte more than a limit.
fn contents(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source::text(path, Arc::default())?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the files in a directory that are dumps; none if it is a run.
fn found(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if crate::inputs::is_of_run(&path) {
            return Ok(Vec::new());
        }
        if path.is_file() && rank_of(&path).is_some() && is_dump(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Whether a file begins like a dump. Its first keys are `version` and `pg_config`; JSON, which is
/// sorted, has those of an entry first.
fn is_dump(path: &Path) -> bool {
    let Ok(bytes) = contents(path, LOOKED_AT) else { return false };
    let begins = pickle::is_pickle(&bytes) || bytes.trim_ascii_start().first() == Some(&b'{');
    let has = |key: &[u8]| bytes.windows(key.len()).any(|window| window == key);
    begins && (has(b"pg_config") || has(b"collective_seq_id"))
}

/// Returns the name of a file before its rank, and the rank: the digits at the end of its name, or
/// before an extension.
fn rank_of(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let stem = match name.rsplit_once(|c: char| c.is_ascii_digit()) {
        // What follows the last digit has to be extensions, such as `.json.gz`.
        Some((_, rest)) if rest.is_empty() || rest.starts_with('.') => {
            &name[..name.len() - rest.len()]
        }
        _ => return None,
    };
    let prefix = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((prefix.to_owned(), stem[prefix.len()..].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_at_the_end_of_the_name() {
        let of = |name: &str| rank_of(Path::new(name));
        let some = |prefix: &str, rank| Some((prefix.to_owned(), rank));
        assert_eq!(of("/tmp/nccl_trace_rank_12"), some("nccl_trace_rank_", 12));
        assert_eq!(of("trace2_rank_3.json.gz"), some("trace2_rank_", 3));
        assert_eq!(of("7"), some("", 7));
        assert_eq!(of("rank_x"), None);
        assert_eq!(of("rank_3_old"), None);
    }
}
