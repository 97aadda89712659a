//! Counts events by phase and category.

use crate::categories::{Category, category};
use serde_json::{Map, Value};

/// Largest number of kinds that are counted separately.
const MAX_KINDS: usize = 256;

struct Kind {
    phase: Box<[u8]>,
    category: Box<[u8]>,
    meaning: Category,
    count: u64,
}

/// Counts by kind. Consecutive events often have the same kind, so the last one is remembered.
#[derive(Default)]
pub(crate) struct Kinds {
    kinds: Vec<Kind>,
    last: usize,
    others: u64,
}

impl Kinds {
    /// Counts an event, and returns the meaning of its category.
    #[inline]
    pub fn count(&mut self, phase: &[u8], name: &[u8]) -> Category {
        let is = |kind: &Kind| *kind.phase == *phase && *kind.category == *name;
        if !self.kinds.get(self.last).is_some_and(is) {
            match self.kinds.iter().position(is) {
                Some(at) => self.last = at,
                None if self.kinds.len() < MAX_KINDS => {
                    let (phase, meaning) = (phase.into(), category(name));
                    self.last = self.kinds.len();
                    self.kinds.push(Kind { phase, category: name.into(), meaning, count: 0 });
                }
                None => {
                    self.others += 1;
                    return category(name);
                }
            }
        }
        let kind = &mut self.kinds[self.last];
        kind.count += 1;
        kind.meaning
    }

    /// Returns counts such as `{"X cpu_op": 359, …}`.
    pub fn to_json(&self) -> Value {
        let mut counts = Map::new();
        for kind in &self.kinds {
            let name = [&kind.phase, &b" "[..], &kind.category].concat();
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            counts.insert(name, kind.count.into());
        }
        if self.others > 0 {
            counts.insert("other".to_owned(), self.others.into());
        }
        Value::Object(counts)
    }
}
