//! Caches results of commands. If the cache is full, it evicts the least recently used result.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

use super::output::Output;
use crate::failure::Failure;
use crate::runs::Stamp;

/// Limit of the bytes that answers take in memory.
const MAX_MEMORY: u64 = 48 << 20;
/// Limit of the total bytes of answers, including those in files.
const MAX_BYTES: u64 = 2 << 30;
/// Limit of the number of answers. Each large answer is an open file, so it takes a descriptor.
const MAX_ANSWERS: usize = 400;

/// A result and the state of the files it was made from.
#[derive(Clone, Debug)]
pub struct CachedResult {
    pub stamps: Vec<Stamp>,
    /// When an answer about a run in progress, or a failure, stops being reused.
    pub good_until: Instant,
    pub answer: Result<Arc<Output>, Failure>,
}

#[derive(Debug)]
struct CacheEntry {
    made: CachedResult,
    used: u64,
}

/// Cached answers, by arguments.
#[derive(Debug, Default)]
pub struct ResultCache {
    answers: HashMap<Vec<OsString>, CacheEntry>,
    uses: u64,
}

impl ResultCache {
    pub fn get(&mut self, words: &[OsString]) -> Option<CachedResult> {
        self.uses += 1;
        let entry = self.answers.get_mut(words)?;
        entry.used = self.uses;
        Some(entry.made.clone())
    }

    pub fn put(&mut self, words: Vec<OsString>, made: CachedResult) {
        self.uses += 1;
        self.answers.insert(words, CacheEntry { made, used: self.uses });
        while self.is_too_full() {
            let oldest = self.answers.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(words, _)| words.clone()) else { break };
            self.answers.remove(&oldest);
        }
    }

    fn is_too_full(&self) -> bool {
        let outputs = || self.answers.values().filter_map(|one| one.made.answer.as_ref().ok());
        let memory: u64 = outputs().map(|output| output.memory_bytes()).sum();
        let bytes: u64 = outputs().map(|output| output.len()).sum();
        self.answers.len() > 1 && (memory > MAX_MEMORY || bytes > MAX_BYTES)
            || self.answers.len() > MAX_ANSWERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_result_is_evicted_first() {
        let mut cache = ResultCache::default();
        let made = || CachedResult {
            stamps: Vec::new(),
            good_until: Instant::now(),
            answer: Err(Failure::new("a", "b")),
        };
        let words = |number: usize| vec![OsString::from(number.to_string())];
        for number in 0..MAX_ANSWERS {
            cache.put(words(number), made());
        }
        assert!(cache.get(&words(0)).is_some());
        cache.put(words(MAX_ANSWERS), made());
        assert!(cache.get(&words(0)).is_some() && cache.get(&words(1)).is_none());
        assert_eq!(cache.answers.len(), MAX_ANSWERS);
    }
}
