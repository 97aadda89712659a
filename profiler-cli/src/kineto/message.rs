//! Messages of Kineto's IPC fabric: a header of 40 bytes (the length of the payload, and the type
//! as text), then the payload, both in the machine's byte order. Each message is one datagram.

use std::ffi::OsStr;
use tprof_collect::KinetoWindow;

/// Size of a header: a length of 8 bytes, and a type of 32 bytes.
const HEAD_BYTES: usize = 40;
/// Largest number of pids in a request: a process and its ancestors.
const MOST_PIDS: usize = 64;
/// Kineto's number for the kind of request that asks for a configuration of activities.
const ACTIVITIES: i32 = 2;
/// Length of a window in milliseconds, for processes in which Kineto counts no steps.
const WINDOW_MS: u32 = 1000;
/// The activities that Kineto records. They are only those of the host, because CUPTI supports only
/// one profiler, and tprof itself uses it to record device work.
const HOST: &str = "cpu_op,user_annotation";

/// A message from a process.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// The process asks what to record.
    Request {
        /// Whether the process could record activities now.
        is_free: bool,
        /// The process's pid, then those of its ancestors, nearest first.
        pids: Vec<u32>,
    },
    /// The process registers a GPU, and expects the number of processes that did so.
    Context,
}

impl Message {
    /// Parses a datagram; `None` if it isn't a valid message.
    pub fn of(bytes: &[u8]) -> Option<Message> {
        let (head, payload) = bytes.split_at_checked(HEAD_BYTES)?;
        let length = u64::from_ne_bytes(*head.first_chunk()?);
        let payload = payload.get(..usize::try_from(length).ok()?)?;
        let kind = head[8..].split(|byte| *byte == 0).next()?;
        match kind {
            b"ctxt" => Some(Message::Context),
            b"req" => {
                let number = |at: usize| {
                    payload.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
                };
                let count = usize::try_from(number(4)?).ok().filter(|count| *count <= MOST_PIDS)?;
                // The job's id, 8 bytes, is skipped: the socket belongs to one job.
                let pids = (0..count).map(|at| u32::try_from(number(16 + 4 * at)?).ok());
                let pids = pids.collect::<Option<Vec<u32>>>().filter(|pids| !pids.is_empty())?;
                Some(Message::Request { is_free: number(0)? & ACTIVITIES != 0, pids })
            }
            _ => None,
        }
    }
}

/// Returns the bytes of a message to a process: its type and its payload.
pub fn answer(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(kind.as_bytes());
    bytes.resize(HEAD_BYTES, 0);
    bytes.extend(payload);
    bytes
}

/// Returns the answer to a request: what to record, and the name of the file to write, to which
/// Kineto adds the pid. If `window` is `None`, the answer is an empty configuration.
pub fn configuration(window: Option<(KinetoWindow, &OsStr)>) -> Vec<u8> {
    let text = window.map(|(window, file)| {
        let file = file.to_string_lossy();
        let KinetoWindow { steps, stacks, shapes } = window;
        let python = if stacks { ",python_function" } else { "" };
        // Recording starts with the next step but one, because the next step is for warming up. If
        // Kineto counts no steps, it uses the duration.
        format!(
            "ACTIVITIES_LOG_FILE={file}\nACTIVITY_TYPES={HOST}{python}\n\
             PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=1\n\
             ACTIVITIES_ITERATIONS={steps}\nACTIVITIES_WARMUP_ITERATIONS=1\n\
             ACTIVITIES_DURATION_MSECS={WINDOW_MS}\nACTIVITIES_WARMUP_PERIOD_SECS=0\n\
             PROFILE_REPORT_INPUT_SHAPES={shapes}\nPROFILE_WITH_STACK={stacks}\n"
        )
    });
    answer("req", text.unwrap_or_default().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: i32, count: i32, pids: &[i32]) -> Vec<u8> {
        let mut payload = [kind.to_ne_bytes(), count.to_ne_bytes()].concat();
        payload.extend(7u64.to_ne_bytes());
        payload.extend(pids.iter().flat_map(|pid| pid.to_ne_bytes()));
        answer("req", &payload)
    }

    #[test]
    fn a_request_has_its_pids_and_whether_the_process_is_free() {
        let read = |is_free, pids: &[u32]| Some(Message::Request { is_free, pids: pids.to_vec() });
        assert_eq!(Message::of(&request(2, 3, &[30, 20, 1])), read(true, &[30, 20, 1]));
        assert_eq!(Message::of(&request(0, 1, &[30])), read(false, &[30]));
        assert_eq!(Message::of(&answer("ctxt", &[0; 16])), Some(Message::Context));
    }

    #[test]
    fn invalid_datagrams_are_not_messages() {
        let whole = request(2, 2, &[30, 20]);
        for length in 0..whole.len() {
            assert_eq!(Message::of(&whole[..length]), None, "{length}");
        }
        for wrong in [request(2, 0, &[]), request(2, -1, &[30]), request(2, 3, &[30, 20])] {
            assert_eq!(Message::of(&wrong), None);
        }
        assert_eq!(Message::of(&request(2, 1, &[-5])), None);
        assert_eq!(Message::of(&request(2, i32::MAX, &[30])), None);
        assert_eq!(Message::of(&answer("perf", &[])), None);
        let mut endless = whole;
        endless[..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(Message::of(&endless), None);
    }

    #[test]
    fn a_process_without_a_window_gets_an_empty_answer() {
        assert_eq!(configuration(None), answer("req", b""));
        let window = KinetoWindow { steps: 5, stacks: false, shapes: true };
        let text =
            String::from_utf8(configuration(Some((window, OsStr::new("/r/a.json"))))).unwrap();
        assert!(text.contains("ACTIVITIES_LOG_FILE=/r/a.json\n"), "{text}");
        assert!(text.contains("\nACTIVITIES_ITERATIONS=5\n"), "{text}");
        assert!(text.contains("=cpu_op,user_annotation\n"), "{text}");
        assert!(text.contains("_SHAPES=true\nPROFILE_WITH_STACK=false\n"), "{text}");
    }
}
