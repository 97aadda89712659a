//! Finds the files that contain a module's symbols: the module itself, and its separate debug file.

use crate::elf::{Elf, VDSO, own_vdso, u32_at};
use crate::module_file::ModuleFile;
use std::path::{Path, PathBuf};

/// Largest debug file whose checksum is computed to see that it belongs to the module, bytes. That
/// is needed only if it has no build id.
const MAX_CHECKED: u64 = 256 << 20;

/// Opens a module by one of the paths that may lead to it, and returns that path.
pub(crate) fn find_module(module: &ModuleFile) -> Option<(Elf, PathBuf)> {
    if module.path == Path::new(VDSO) {
        let elf = Elf::from_bytes(own_vdso()?).ok()?;
        return Some((elf, module.path.clone()));
    }
    let paths = module.reached.iter().chain([&module.path]);
    paths.filter(|path| path.is_absolute()).find_map(|path| {
        let elf = Elf::open(path).ok()?;
        let same = module.build_id.is_empty() || elf.build_id() == module.build_id;
        same.then(|| (elf, path.clone()))
    })
}

/// Returns the path at which distributions install the debug file with this build id.
pub(crate) fn debug_file_of(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    (!rest.is_empty())
        .then(|| PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// Finds the separate debug file of a module, by build id or by `.gnu_debuglink`.
pub(crate) fn find_debug_file(
    build_id: &str,
    own: Option<(&Elf, &Path)>,
) -> Option<(Elf, PathBuf)> {
    if let Some(path) = debug_file_of(build_id)
        && let Ok(elf) = Elf::open(&path)
        && elf.build_id() == build_id
    {
        return Some((elf, path));
    }
    let (own, path) = own?;
    let section = own.sections().into_iter().find(|s| s.name == ".gnu_debuglink")?;
    let link = own.contents(&section, 8192).ok()?;
    let end = link.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&link[..end]).ok()?;
    let checksum = u32_at(&link, (end + 1).next_multiple_of(4));
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let directory = path.parent()?;
    let places = [
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new("/usr/lib/debug").join(directory.strip_prefix("/").ok()?).join(name),
    ];
    places.into_iter().filter(|place| place != path).find_map(|place| {
        let elf = Elf::open(&place).ok()?;
        let own_id = own.build_id();
        let same = if own_id.is_empty() {
            checksum_of(&elf) == Some(checksum)
        } else {
            elf.build_id() == own_id
        };
        same.then_some((elf, place))
    })
}

/// Computes the CRC-32 of a whole file, to compare it with that in a debug link.
fn checksum_of(elf: &Elf) -> Option<u32> {
    const BLOCK: u64 = 1 << 20;
    if elf.len() > MAX_CHECKED {
        return None;
    }
    let mut crc = flate2::Crc::new();
    let mut at = 0;
    while at < elf.len() {
        let block = elf.read(at, BLOCK.min(elf.len() - at)).ok()?;
        crc.update(&block);
        at += block.len() as u64;
    }
    Some(crc.sum())
}
