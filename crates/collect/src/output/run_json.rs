//! Writes `run.json`.

use super::shown_path::file_name;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tprof_trace::run::RunInfo;

/// Reduces the programs in `info` to their base names. Their arguments were removed earlier.
pub fn redact(info: &mut RunInfo) {
    for process in &mut info.processes {
        process.command = file_name(&process.command).to_owned();
    }
    for blind in &mut info.completeness.blind {
        let named = blind.process.split_once(' ');
        blind.process = match named.filter(|(pid, _)| pid.parse::<u32>().is_ok()) {
            Some((pid, command)) => format!("{pid} {}", file_name(command)),
            None => file_name(&blind.process).to_owned(),
        };
    }
}

/// Writes `run.json` under a temporary name and renames it, so that readers see a whole file.
/// Returns its size in bytes.
pub fn write(path: &Path, info: &RunInfo) -> io::Result<usize> {
    let temporary = path.with_extension("json.tmp");
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&temporary)?;
    let text = tprof_trace::info_text(info)?;
    let written = file.write_all(&text);
    drop(file);
    match written.and_then(|()| std::fs::rename(&temporary, path)) {
        Ok(()) => Ok(text.len()),
        Err(e) => {
            let _ = std::fs::remove_file(&temporary);
            Err(e)
        }
    }
}
