//! Measures memory bandwidth by the triad of McCalpin's STREAM, `a = b + s · c`, on arrays that are
//! larger than all caches. It counts the bytes that the program reads and writes. As in STREAM and
//! in `report roofline`, it doesn't count the lines that a cache reads before it writes them.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;

use super::super::machine::cgroup_limit;

/// The arrays together are at least this many times as large as the last-level caches of all
/// processors.
const TIMES_CACHE: u64 = 4;
/// Smallest total size of the arrays in bytes.
const LEAST: u64 = 192 << 20;
/// Number of arrays.
const ARRAYS: u64 = 3;
/// Size of an element in bytes.
const ELEMENT: u64 = 8;

/// Returns the total size of the arrays in bytes; `None` if that exceeds half of the available
/// memory, or a quarter of the cgroup's limit.
pub(super) fn bytes() -> Option<u64> {
    let all = last_caches().unwrap_or(0).saturating_mul(TIMES_CACHE).max(LEAST);
    let limit = cgroup_limit().and_then(|(_, limit)| limit).unwrap_or(u64::MAX);
    (all <= (available()? / 2).min(limit / 4)).then_some(all)
}

/// Returns the memory that programs can still use, in bytes.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the total size of all last-level caches in bytes.
fn last_caches() -> Option<u64> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").ok()?;
    let indexes = cpus.flatten().filter_map(|cpu| fs::read_dir(cpu.path().join("cache")).ok());
    let cache = |entry: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let level: u32 = read("level")?.trim().parse().ok()?;
        Some(((level, read("shared_cpu_list")?), parse(&read("size")?)?))
    };
    // Each processor lists the caches that it shares with others, so the map has each cache once.
    let all: BTreeMap<(u32, String), u64> = indexes.flatten().flatten().filter_map(cache).collect();
    let last = all.keys().next_back()?.0;
    Some(all.iter().filter(|((level, _), _)| *level == last).map(|(_, size)| *size).sum())
}

/// Parses a size such as `2048K`.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Allocates the calling thread's arrays, with this total size. Returns a function that makes a
/// pass over them and returns the number of bytes it read and wrote.
pub(super) fn arrays(bytes: u64) -> impl FnMut() -> f64 {
    let count = (bytes / ARRAYS / ELEMENT).max(1) as usize;
    // The values are not zero, because the kernel may use one shared page for all pages of zeros.
    let [mut a, mut b, c] = [1.0, 2.0, 3.0].map(|value| vec![value; count]);
    move || {
        let factor = black_box(3.0);
        for ((a, b), c) in a.iter_mut().zip(&b).zip(&c) {
            *a = b + factor * c;
        }
        black_box(&mut a);
        std::mem::swap(&mut a, &mut b);
        (count as u64 * ARRAYS * ELEMENT) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("2048K\n"), Some(2 << 20));
        assert_eq!(parse("32M"), Some(32 << 20));
        assert_eq!(parse("512"), Some(512));
        assert_eq!(parse(""), None);
        assert_eq!(parse("K"), None);
    }

    #[test]
    fn a_pass_reads_two_arrays_and_writes_one() {
        let mut pass = arrays(2400);
        assert_eq!(pass(), 2400.0);
    }
}
