//! Remembers when streams were captured into graphs, from the hooks' records. Work that is started
//! during a capture may become part of a graph, and then does not run.

use std::collections::HashMap;
use tprof_wire::calls::Number;

/// Number of ended captures that are remembered. If one more ends, the oldest is dropped.
const MOST: usize = 1 << 12;

/// The captures of a process, open and ended.
#[derive(Debug, Default)]
pub struct Captures {
    /// Start of each open capture, ns, by stream.
    open: HashMap<u64, u64>,
    ended: Vec<(u64, u64)>,
}

impl Captures {
    /// Applies a successful call that begins or ends a capture of a stream.
    pub fn called(&mut self, number: u32, stream: u64, [from_ns, to_ns]: [u64; 2]) {
        let is = |of: [Number; 2]| of.iter().any(|of| *of as u32 == number);
        if is([Number::cudaStreamBeginCapture, Number::cudaStreamBeginCapture_ptsz]) {
            self.open.insert(stream, from_ns);
        } else if is([Number::cudaStreamEndCapture, Number::cudaStreamEndCapture_ptsz]) {
            // If no start was recorded, a function that has no hook began the capture at an unknown
            // time.
            let since_ns = self.open.remove(&stream).unwrap_or(0);
            if self.ended.len() == MOST {
                self.ended.remove(0);
            }
            self.ended.push((since_ns, to_ns));
        }
    }

    /// Whether any stream was being captured at a moment.
    pub fn was_on(&self, at_ns: u64) -> bool {
        self.open.values().any(|since_ns| *since_ns <= at_ns)
            || self.ended.iter().rev().any(|(from, to)| (*from..=*to).contains(&at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_lasts_from_its_beginning_to_its_end() {
        let mut captures = Captures::default();
        captures.called(Number::cudaStreamBeginCapture as u32, 7, [100, 110]);
        assert!(captures.was_on(150) && !captures.was_on(99));
        captures.called(Number::cudaStreamEndCapture as u32, 7, [200, 210]);
        assert!(captures.was_on(150) && captures.was_on(205) && !captures.was_on(211));
        // The end of another stream's capture, whose beginning was not recorded.
        captures.called(Number::cudaStreamEndCapture as u32, 8, [50, 60]);
        assert!(captures.was_on(1) && !captures.was_on(61));
    }
}
