//! Finds the times in which recording was off.

use tprof_facts::cycles;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::TraceFile;

/// The times in which a file recorded nothing.
pub(crate) fn paused(file: &TraceFile) -> Cover {
    Cover::of(cycles::paused(file).into_iter().map(|(from, to)| Interval::new(from, to)))
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Mark, MarkKind};

    use super::*;

    #[test]
    fn time_between_marks_that_stop_and_start_recording_is_paused() {
        use MarkKind::{RecordingOff as Off, RecordingOn as On};
        let of = |marks: &[(u64, MarkKind)]| {
            let mut made = Fixture::new();
            for (time_ns, kind) in marks {
                let name = made.name("");
                made.writer.mark(Mark { time_ns: *time_ns, process: None, name, kind: *kind });
            }
            let cover = paused(&made.finish());
            cover.parts().iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(50, On)]), [(0, 50)]);
        assert_eq!(of(&[(20, Off), (50, On), (70, Off)]), [(20, 50), (70, u64::MAX)]);
    }
}
