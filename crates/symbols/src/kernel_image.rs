//! Caches the functions of the kernel's own image between runs. Without the cache, each run would
//! read all of `/proc/kallsyms`, which takes 36 ms, because the kernel creates every line anew.
//!
//! The cache must not reveal names or addresses that the kernel hides from the user. Therefore it
//! contains only distances from the beginning of the image. Each run first reads from the kernel
//! where the image begins and compares some functions there with the cached ones; if the kernel
//! hides them, the cache isn't used. Functions outside the image, such as those of kernel modules,
//! are not cached.

use crate::disk_cache::{CachedContent, DiskCache, FileKind, LibraryKey};
use crate::elf::{u32_at, u64_at};
use crate::kallsyms::each_function;
use std::io::BufRead;
use std::ops::Deref;

/// Symbols at the beginning and at the end of the image's code.
const BEGIN: &[u8] = b"_stext";
const END: &[u8] = b"_etext";
/// Number of functions at the beginning that must agree with the cached ones.
const SAME: usize = 64;
/// Largest number of symbols before the image that are skipped.
const MAX_SKIPPED: usize = 4096;
/// Largest number of functions in an image. A distribution's kernel has a tenth of that.
const MAX_FUNCTIONS: usize = 2 << 20;

/// The cached functions of the running kernel's image.
pub(crate) struct KernelImage {
    begin: u64,
    functions: Functions<CachedContent>,
}

/// Functions by their distance from the beginning of the image. The encoding is the number of
/// functions, the distance of each, the end of each name, and the names. It is read in place.
struct Functions<B> {
    bytes: B,
    count: usize,
}

/// Number of bytes before the distances: the number of functions.
const HEAD: usize = 8;

impl KernelImage {
    /// Reads the cached functions of the running kernel. `lines` are the running kernel's symbols.
    pub fn read(kept: &DiskCache, lines: impl BufRead) -> Option<KernelImage> {
        let content = kept.read(&LibraryKey::of_kernel()?, FileKind::KernelSymbols)?;
        let functions = Functions::in_bytes(content)?;
        let begin = functions.place(lines)?;
        Some(KernelImage { begin, functions })
    }

    /// Caches the functions of the running kernel. `functions` is in order of address.
    pub fn keep<'a>(kept: &DiskCache, functions: impl Iterator<Item = (u64, &'a [u8])>) {
        if let Some(key) = LibraryKey::of_kernel()
            && let Some(bytes) = encode(functions)
        {
            kept.write(&key, FileKind::KernelSymbols, &[&bytes]);
        }
    }

    /// Returns the name of the image's function that contains an address.
    pub fn name_at(&self, address: u64) -> Option<String> {
        let name = self.functions.name_at(address.checked_sub(self.begin)?)?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

impl<B: Deref<Target = [u8]>> Functions<B> {
    /// Checks encoded functions; `None` if the bytes are malformed.
    fn in_bytes(bytes: B) -> Option<Functions<B>> {
        let count =
            usize::try_from(u64_at(bytes.get(..HEAD)?, 0)).ok().filter(|n| *n <= MAX_FUNCTIONS)?;
        let functions = Functions { bytes, count };
        let is_sorted = |from: usize| {
            let words = functions.bytes.get(from..from + 4 * count)?;
            words.chunks_exact(4).map(|word| u32_at(word, 0)).is_sorted().then_some(())
        };
        is_sorted(HEAD)?;
        is_sorted(HEAD + 4 * count)?;
        Some(functions)
    }

    fn distance(&self, at: usize) -> u32 {
        u32_at(&self.bytes, HEAD + 4 * at)
    }

    fn name(&self, at: usize) -> Option<&[u8]> {
        let end = |at: usize| u32_at(&self.bytes, HEAD + 4 * (self.count + at)) as usize;
        let names = &self.bytes[HEAD + 8 * self.count..];
        names.get(at.checked_sub(1).map_or(0, end)..end(at))
    }

    /// Returns the name of the function at this distance from the beginning of the image.
    fn name_at(&self, distance: u64) -> Option<&[u8]> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = (from + to) / 2;
            match u64::from(self.distance(middle)) <= distance {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        // The length of the last function is unknown, so an address after its start may be outside
        // the image.
        let is_inside = from > 0 && from < self.count;
        is_inside.then(|| self.name(from - 1)).flatten()
    }

    /// Returns the address at which the image begins according to `lines`; `None` if its functions
    /// don't agree with these.
    fn place(&self, lines: impl BufRead) -> Option<u64> {
        let mut begin = None;
        let (mut skipped, mut same, mut differs) = (0, 0, false);
        // Symbols directly before `_stext` that have the same address belong to the image too.
        let mut before: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut check = |begin: u64, address: u64, name: &[u8]| {
            differs |= same >= self.count
                || address.checked_sub(begin) != Some(u64::from(self.distance(same)))
                || self.name(same) != Some(name);
            same += 1;
            !differs && same < SAME
        };
        each_function(lines, |address, name| match begin {
            Some(begin) => check(begin, address, name),
            None => {
                before.retain(|(at, _)| *at == address);
                before.push((address, name.to_vec()));
                if name != BEGIN {
                    skipped += 1;
                    return skipped < MAX_SKIPPED;
                }
                begin = Some(address);
                before.iter().all(|(at, name)| check(address, *at, name))
            }
        });
        begin.filter(|_| same == SAME && !differs)
    }
}

/// Encodes those of the functions that are in the image; `None` if its beginning or its end isn't
/// found.
fn encode<'a>(all: impl Iterator<Item = (u64, &'a [u8])>) -> Option<Vec<u8>> {
    let all: Vec<_> = all.collect();
    let place = |mark: &[u8]| all.iter().find(|f| f.1 == mark).map(|f| f.0);
    let (begin, end) = (place(BEGIN)?, place(END)?);
    let (mut distances, mut ends, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (address, name) in all.iter().filter(|f| (begin..=end).contains(&f.0)) {
        distances.push(u32::try_from(address - begin).ok()?);
        names.extend_from_slice(name);
        ends.push(u32::try_from(names.len()).ok()?);
    }
    let mut bytes = (ends.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(distances.iter().chain(&ends).flat_map(|word| word.to_ne_bytes()));
    bytes.extend_from_slice(&names);
    (SAME..=MAX_FUNCTIONS).contains(&ends.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    /// Returns the symbol list of a kernel with 100 functions at `base`. Lines in `before` come
    /// first, and a kernel module follows.
    fn kernel(before: &str, base: u64) -> String {
        let mut text = format!("{before}{base:016x} T first\n{base:016x} T _stext\n");
        for at in 1..100 {
            text += &format!("{:016x} t function_{at}\n", base + at * 32);
        }
        text + &format!("{:016x} T _etext\nffffffffc0000000 t of_a_module\t[m]\n", base + 3200)
    }

    fn functions(text: &str) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        each_function(text.as_bytes(), |address, name| {
            found.push((address, name.to_vec()));
            true
        });
        found
    }

    fn kept(text: &str) -> Functions<Vec<u8>> {
        let all = functions(text);
        let all = all.iter().map(|(address, name)| (*address, name.as_slice()));
        Functions::in_bytes(encode(all).unwrap()).unwrap()
    }

    #[test]
    fn cached_names_are_found_in_an_image_at_another_address() {
        let moved = BASE + (5 << 21);
        let before = "ffffffff80000000 T before\n";
        let image = kept(&kernel("", BASE));
        let begin = image.place(kernel(before, moved).as_bytes());
        assert_eq!(begin, Some(moved));
        let name_at = |distance| image.name_at(distance).map(String::from_utf8_lossy);
        assert_eq!(name_at(0).as_deref(), Some("_stext"));
        assert_eq!(name_at(31).as_deref(), Some("_stext"));
        assert_eq!(name_at(32).as_deref(), Some("function_1"));
        assert_eq!(name_at(99 * 32 + 7).as_deref(), Some("function_99"));
        for outside in [3200, 0xffff_ffff, 1 << 33] {
            assert_eq!(name_at(outside), None, "{outside:x}");
        }
    }

    #[test]
    fn the_cache_is_not_used_for_another_kernel_or_hidden_addresses() {
        let text = kernel("", BASE);
        let hidden: String =
            text.lines().map(|line| format!("{:016}{}\n", 0, &line[16..])).collect();
        let other = text.replace("function_50\n", "another\n");
        let shifted = kernel("", BASE).replace("_50\n", "_50\nffffffff81000641 t new\n");
        let without = text.replace("_stext", "start");
        for text in [hidden, other, shifted, without, String::new()] {
            assert!(kept(&kernel("", BASE)).place(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn malformed_cached_functions_are_rejected() {
        let whole = kept(&kernel("", BASE)).bytes;
        for len in [0, 7, 8, 100, 400, 800] {
            assert!(Functions::in_bytes(&whole[..len]).is_none(), "cut to {len}");
        }
        let mut unsorted = whole.clone();
        unsorted[8..12].fill(0xff);
        assert!(Functions::in_bytes(unsorted).is_none());
        let mut many = whole;
        many[..8].fill(0xff);
        assert!(Functions::in_bytes(many).is_none());
    }
}
