//! Reads a log into a [`CompileLog`]: one line at a time, in bounded memory.

use super::bounds::Bounds;
use super::dates::PrefixTime;
use super::graph::GraphStage;
use super::head::{self, Content, Head};
use super::line;
use super::lines::{Line, LineContent, Lines};
use super::log::{CacheOutcome, CompileId, CompileLog};
use super::numbers::Stage;
use super::payload;
use super::rows::{EventAt, LogRows};
use super::source::{CUT_LINE, text};
use std::io::{self, BufRead};
use std::path::Path;

/// Maximum size of a payload that is kept, bytes. The rest is skipped.
const MAX_PAYLOAD: usize = 16 << 20;

/// Reads a log file, plain or compressed by zstd.
pub fn open(path: &Path, bounds: Bounds) -> io::Result<CompileLog> {
    read(text(path)?, bounds)
}

/// Reads a log. If the source reports an error, the log ends there, as if it were cut off.
pub fn read(source: impl BufRead, bounds: Bounds) -> io::Result<CompileLog> {
    let mut lines = Lines::new(source, bounds.text);
    let mut reader = Reader { rows: LogRows::new(bounds), payload: None, text: Vec::new() };
    let mut has_failed = false;
    loop {
        match lines.next() {
            Ok(Some(line)) => reader.line(line),
            Ok(None) => break,
            Err(error) if reader.rows.log.bytes == 0 => return Err(error),
            Err(_) => {
                has_failed = true;
                break;
            }
        }
    }
    reader.end_payload();
    Ok(CompileLog {
        is_cut: has_failed || !lines.is_ended && !lines.has_more,
        is_read_in_part: lines.has_more,
        ..reader.rows.finish()
    })
}

/// A payload whose lines are being read, and how they are used.
#[derive(Debug)]
struct Payload {
    want: PayloadUse,
    /// The name under which the event is counted.
    counted: String,
    id: CompileId,
    at: PrefixTime,
    /// Total size of the lines, bytes.
    bytes: u64,
    /// Whether the payload is longer than the part that is kept.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadUse {
    Nothing,
    /// The time of a `chromium_event`. Only the first such time is used, because one is enough to
    /// find the zone.
    Anchor,
    Break,
    Reasons,
    Bypass(&'static str),
    Graph(GraphStage),
    Code,
    KernelStacks,
    Version,
}

#[derive(Debug)]
struct Reader {
    rows: LogRows,
    payload: Option<Payload>,
    text: Vec<u8>,
}

impl Reader {
    fn line(&mut self, line: Line<'_>) {
        self.rows.log.bytes += line.bytes;
        match line.content {
            LineContent::Text(text) => match text.strip_prefix(b"\t") {
                Some(payload) => self.payload_line(payload, line.bytes),
                None => {
                    self.end_payload();
                    self.event_line(text, line);
                }
            },
            LineContent::TooLong => {
                self.end_payload();
                self.rows.log.damaged += 1;
            }
            LineContent::Hole => {
                if let Some(payload) = &mut self.payload {
                    payload.want = PayloadUse::Nothing;
                }
                self.end_payload();
                self.not_kept(line.bytes);
            }
        }
    }

    /// Counts bytes that the run did not keep. A log may state any number of them.
    fn not_kept(&mut self, bytes: u64) {
        let all = &mut self.rows.log.bytes_not_kept;
        *all = all.saturating_add(bytes);
    }

    fn event_line(&mut self, text: &[u8], line: Line<'_>) {
        if text.is_empty() {
            return;
        }
        if let Some(bytes) = bytes_left_out(text) {
            self.not_kept(bytes);
            return;
        }
        let found =
            line::split(text).and_then(|(prefix, json)| Some((prefix, head::parse(json).ok()?)));
        match found {
            Some((prefix, head)) if !head.event.is_empty() => {
                self.rows.log.pid = self.rows.log.pid.or(prefix.pid);
                self.event(prefix.time, head, line.bytes);
            }
            _ => self.rows.log.damaged += u64::from(line.has_end),
        }
    }

    fn payload_line(&mut self, text: &[u8], bytes: u64) {
        // After a hole or a damaged line, a payload line belongs to an event that was lost, so skip
        // it.
        let Some(payload) = &mut self.payload else { return };
        payload.bytes += bytes;
        if payload.want == PayloadUse::Nothing {
            return;
        }
        payload.is_cut |= self.text.len() + text.len() >= MAX_PAYLOAD;
        if !payload.is_cut {
            self.text.extend_from_slice(text);
            self.text.push(b'\n');
        }
    }

    fn event(&mut self, time: PrefixTime, head: Head, bytes: u64) {
        let artifact = match &head.content {
            Content::Artifact(name) => Some(name.as_str()),
            _ => None,
        };
        let counted = self.rows.count(time, &head, artifact, bytes);
        let name = artifact.unwrap_or(&head.event);
        let id = self.rows.compilation(head.id, stage(&head, name));
        let at = EventAt { id, attempt: head.attempt, time };
        if let Some((cache, outcome)) = look_up(name) {
            self.rows.cache(id, cache, outcome, None);
        }
        if head.has_payload {
            let want = want(name, self.rows.lacks_zone());
            let (at, bytes, is_cut) = (time, 0, false);
            self.payload = Some(Payload { want, counted, id, at, bytes, is_cut });
        }
        match head.content {
            Content::Text(text, number) => self.rows.intern(text, number),
            Content::Start(place) => self.rows.start(at, place),
            Content::Metrics(metrics) => self.rows.metrics(at, &head.event, *metrics),
            Content::Code(path) => self.rows.code(id, path),
            Content::Nothing | Content::Artifact(_) => {}
        }
    }

    /// Reads the part of the payload that was kept.
    fn end_payload(&mut self) {
        let Some(payload) = self.payload.take() else { return };
        if let Some(row) = self.rows.log.events.get_mut(&payload.counted) {
            row.bytes += payload.bytes;
        }
        self.rows.payload_ends(payload.is_cut);
        if payload.want != PayloadUse::Nothing {
            let bytes = std::mem::take(&mut self.text);
            self.read_payload(&payload, &String::from_utf8_lossy(&bytes));
            self.text = bytes;
        }
        self.text.clear();
    }

    fn read_payload(&mut self, payload: &Payload, text: &str) {
        let Payload { want, id, at, is_cut, .. } = *payload;
        let rows = &mut self.rows;
        match want {
            PayloadUse::Nothing => {}
            PayloadUse::Anchor => {
                if let Some(us) = payload::moment(text) {
                    rows.anchor(at, us);
                }
            }
            PayloadUse::Break => rows.graph_break(id, text),
            PayloadUse::Reasons => rows.recompiled(id, text),
            PayloadUse::Bypass(cache) => {
                rows.cache(id, cache, CacheOutcome::Bypass, payload::bypass(text));
            }
            // A cut payload has only some of the kernels or operators, so their numbers would be
            // wrong.
            PayloadUse::Graph(_) | PayloadUse::Code | PayloadUse::KernelStacks if is_cut => {}
            PayloadUse::Graph(stage) => rows.graph(id, stage, text),
            PayloadUse::Code => rows.kernels(id, text),
            PayloadUse::KernelStacks => rows.kernel_stacks(id, text),
            PayloadUse::Version => rows.log.torch = payload::version(text),
        }
    }
}

/// Returns the part of its compilation that an event of this name belongs to.
fn stage(head: &Head, name: &str) -> Stage {
    match &head.content {
        Content::Start(_) => Stage::Begin(head.attempt.unwrap_or(0)),
        Content::Metrics(metrics) if metrics.is_of_run(name) => Stage::Within,
        Content::Metrics(metrics) if metrics.is_backward(name) => Stage::BackwardEnd,
        Content::Metrics(_) => Stage::End,
        _ if name == "recompile_reasons" => Stage::Reasons,
        _ => Stage::Within,
    }
}

/// Returns the number of bytes that tprof left out of the log, if this is the line with which tprof
/// ends a log that it cut.
fn bytes_left_out(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line.strip_prefix(CUT_LINE.as_bytes())?).ok()?.trim().parse().ok()
}

/// Returns the cache and the outcome of a look-up, for events that need no payload.
fn look_up(event: &str) -> Option<(&'static str, CacheOutcome)> {
    Some(match event {
        "fx_graph_cache_hit" | "fx_graph_bundled_cache_hit" => ("fx_graph", CacheOutcome::Hit),
        "fx_graph_cache_miss" => ("fx_graph", CacheOutcome::Miss),
        "aotautograd_cache_hit" => ("aotautograd", CacheOutcome::Hit),
        "aotautograd_cache_miss" => ("aotautograd", CacheOutcome::Miss),
        _ => return None,
    })
}

/// Returns how an event's payload is used.
fn want(event: &str, lacks_zone: bool) -> PayloadUse {
    match event {
        "chromium_event" if lacks_zone => PayloadUse::Anchor,
        "dynamo_graph_break_reason" => PayloadUse::Break,
        "recompile_reasons" => PayloadUse::Reasons,
        "fx_graph_cache_bypass" => PayloadUse::Bypass("fx_graph"),
        "aotautograd_cache_bypass" => PayloadUse::Bypass("aotautograd"),
        "dynamo_output_graph" => PayloadUse::Graph(GraphStage::Traced),
        "inductor_post_grad_graph" => PayloadUse::Graph(GraphStage::Lowered),
        "inductor_output_code" => PayloadUse::Code,
        "inductor_provenance_tracking_kernel_stack_traces" => PayloadUse::KernelStacks,
        "torch_version" => PayloadUse::Version,
        _ => PayloadUse::Nothing,
    }
}
