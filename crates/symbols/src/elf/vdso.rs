//! Reads the vDSO: code that the kernel maps into every process, the same on the whole host.

use super::open;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tprof_os::maps::read_code_maps;

/// Name of the vDSO in `/proc/PID/maps`.
pub const VDSO: &str = "[vdso]";
/// Largest vDSO that is read, bytes.
const MAX_VDSO: u64 = 1 << 20;

/// Returns the bytes of this process's vDSO.
pub fn own_vdso() -> Option<Arc<[u8]>> {
    static BYTES: std::sync::OnceLock<Option<Arc<[u8]>>> = std::sync::OnceLock::new();
    let read = || {
        let maps = read_code_maps(std::process::id()).ok()?;
        let vdso = maps.into_iter().find(|m| m.path == Path::new(VDSO))?;
        let length = vdso.end - vdso.start;
        if length > MAX_VDSO {
            return None;
        }
        let mut bytes = vec![0; length as usize];
        open(Path::new("/proc/self/mem")).ok()?.read_exact_at(&mut bytes, vdso.start).ok()?;
        Some(Arc::from(bytes))
    };
    BYTES.get_or_init(read).clone()
}
