//! When recording was off.

use tprof_trace::TraceFile;
use tprof_trace::model::MarkKind;

use crate::base::intervals::{Cover, Interval};

/// The times in which a file recorded nothing, by its marks: what lies before a first mark of
/// its beginning (`--delay`, `--paused`, a schedule), and from a mark of its end on.
pub(crate) fn paused(file: &TraceFile) -> Cover {
    let mut marks: Vec<(u64, bool)> = (file.marks().iter())
        .filter_map(|mark| match mark.kind {
            MarkKind::RecordingOn => Some((mark.time_ns, true)),
            MarkKind::RecordingOff => Some((mark.time_ns, false)),
            _ => None,
        })
        .collect();
    marks.sort_unstable();
    let mut off_since = marks.first().filter(|(_, is_on)| *is_on).map(|_| 0);
    let mut found = Vec::new();
    for (time_ns, is_on) in marks {
        match is_on {
            true => found.extend(off_since.take().map(|since| Interval::new(since, time_ns))),
            false => off_since = off_since.or(Some(time_ns)),
        }
    }
    found.extend(off_since.map(|since| Interval::new(since, u64::MAX)));
    Cover::of(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use tprof_trace::model::Mark;

    #[test]
    fn what_lies_between_marks_is_paused() {
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
