//! Computes a hash that identifies a run, even if its directory was renamed or moved.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use tprof_tables::name_of;
use tprof_trace::open_plain;
use tprof_ui::newest::FoundRun;

use crate::archive::names::plain;

/// Number of bytes at the end of a trace file that are hashed. They contain the file's index, which
/// has the sizes and times of its rows.
const TAIL: u64 = 4096;
/// Bytes of a file to read at once.
const BUFFER: usize = 1 << 16;
/// Number of hash digits in names.
const DIGITS: usize = 12;

/// A run's name in archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of its directory, a dash, and [`Identity::hash`].
    pub id: String,
    /// Hash of when and where the run took place, and of the names, sizes and last bytes of its
    /// files.
    pub hash: String,
}

impl Identity {
    /// Returns the identity of a run.
    ///
    /// # Errors
    ///
    /// If a trace file cannot be read.
    pub fn of(run: &FoundRun) -> io::Result<Identity> {
        let mut hash = Sha256::new();
        add(&mut hash, b"tprof run");
        add(&mut hash, &run.start_unix_ns.to_le_bytes());
        let mut hosts: Vec<&str> = run.dir.infos().iter().map(|info| info.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        add(&mut hash, hosts.join(",").as_bytes());
        let mut files: Vec<&Path> = run.dir.files().iter().map(|file| &*file.path).collect();
        files.sort_unstable();
        for file in files {
            add(&mut hash, file.file_name().unwrap_or_default().as_encoded_bytes());
            let (size, tail) = end(file)?;
            add(&mut hash, &size.to_le_bytes());
            add(&mut hash, &tail);
        }
        let hash = digits(hash);
        Ok(Identity { id: format!("{}-{hash}", plain(&name_of(run.dir.path()))), hash })
    }
}

/// Hashes a field with its length, so that different sequences of fields never hash the same bytes.
fn add(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn end(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let file = open_plain(path)?;
    let size = file.metadata()?.len();
    let length = size.min(TAIL);
    let mut tail = vec![0; length as usize];
    file.read_exact_at(&mut tail, size - length)?;
    Ok((size, tail))
}

fn digits(hash: Sha256) -> String {
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    hash[..DIGITS].to_owned()
}

/// Returns the hash of a file's bytes.
///
/// # Errors
///
/// If it cannot be read.
pub fn of_file(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = open_plain(path)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digits(hash)),
            bytes => hash.update(&buffer[..bytes]),
        }
    }
}
