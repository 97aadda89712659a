//! From a log's bytes to a [`CompileLog`]: a line at a time, in bounded memory.

use super::code::find_kernels;
use super::dates::{PrefixTime, Zone};
use super::events::{self, EventUse};
use super::graph::{GraphStage, count_operators};
use super::graph_break::{self, short};
use super::head::{self, Content, Head, StackFrame};
use super::line;
use super::log::{
    CacheOutcome, CacheUse, CompileId, CompileLog, CompiledFrame, GeneratedCode, GraphBreak,
    Recompiled,
};
use super::metrics::Metrics;
use super::source::{CUT_LINE, Ending, text};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::{self, BufRead, Read};
use std::path::Path;

/// Longest line that is read; a longer one is damaged.
const MOST_LINE: u64 = 16 << 20;
/// Longest payload that is kept; what is beyond is passed over.
const MOST_PAYLOAD: usize = 16 << 20;
/// Most rows of a kind that are kept of a log.
const MOST_ROWS: usize = 200_000;
/// Longest interned text, and bytes of all of them.
const MOST_TEXT: usize = 4 << 10;
const MOST_TEXTS: usize = 16 << 20;

/// Reads a file, plain or compressed by zstd.
pub fn open(path: &Path) -> io::Result<CompileLog> {
    read(text(path)?)
}

/// Reads a log. An error of the source ends it where it is, as a cut does.
pub fn read(source: impl BufRead) -> io::Result<CompileLog> {
    let mut source = Ending::new(source);
    let mut reader = Reader::default();
    loop {
        match reader.line(&mut source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if reader.log.bytes == 0 => return Err(error),
            Err(_) => {
                reader.log.is_cut = true;
                break;
            }
        }
    }
    reader.log.is_cut |= source.last != b'\n';
    Ok(reader.finish())
}

/// What the lines of a payload are for.
#[derive(Debug)]
struct Payload {
    want: Want,
    /// Under which name the event is counted.
    counted: String,
    id: CompileId,
    at: PrefixTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Nothing,
    /// The time of a `chromium_event`, until one is known.
    Anchor,
    Break,
    Reasons,
    Cache(&'static str, CacheOutcome),
    Graph(GraphStage),
    Code,
    Version,
}

#[derive(Debug, Default)]
struct Reader {
    log: CompileLog,
    buffer: Vec<u8>,
    payload: Option<Payload>,
    text: Vec<u8>,
    strings: FxHashMap<u64, String>,
    strings_bytes: usize,
    frames: FxHashMap<(CompileId, bool), usize>,
    zone: Option<Zone>,
    /// First and last prefix.
    times: Option<(PrefixTime, PrefixTime)>,
    /// Prefixes of frames, until the zone is known.
    began: Vec<(usize, PrefixTime)>,
}

impl Reader {
    /// Reads a line; false at the end.
    fn line(&mut self, source: &mut impl BufRead) -> io::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut bytes, mut zeros, mut parts) = (0, 0, 0_u32);
        loop {
            buffer.clear();
            let read = source.by_ref().take(MOST_LINE).read_until(b'\n', &mut buffer)?;
            bytes += read as u64;
            zeros += buffer.iter().filter(|&&byte| byte == 0).count() as u64;
            parts += u32::from(read > 0);
            if read as u64 != MOST_LINE || buffer.last() == Some(&b'\n') {
                break;
            }
        }
        self.log.bytes += bytes;
        match (zeros, parts) {
            (0, 0) => {}
            (0, 1) => self.take(&buffer),
            (0, _) => {
                self.end_payload();
                self.log.damaged += 1;
            }
            // Of a log that was longer than its bound, the middle is a hole; what is left of the
            // lines around it is a part of it.
            _ => {
                self.payload = None;
                self.text.clear();
                self.log.bytes_not_kept += bytes;
            }
        }
        self.buffer = buffer;
        Ok(parts > 0)
    }

    fn take(&mut self, line: &[u8]) {
        let bytes = line.len() as u64;
        let is_whole = line.last() == Some(&b'\n');
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if let Some(payload) = line.strip_prefix(b"\t") {
            self.payload_line(payload, bytes);
            return;
        }
        self.end_payload();
        if line.is_empty() {
            return;
        }
        let text = std::str::from_utf8(line).ok();
        let left_out =
            text.and_then(|text| text.strip_prefix(CUT_LINE)?.trim().parse::<u64>().ok());
        if let Some(bytes) = left_out {
            self.log.bytes_not_kept += bytes;
            return;
        }
        let found =
            line::split(line).and_then(|(prefix, json)| Some((prefix, head::parse(json).ok()?)));
        match found {
            Some((prefix, head)) if !head.event.is_empty() => {
                self.log.pid = self.log.pid.or(prefix.pid);
                let first = self.times.map_or(prefix.time, |times| times.0);
                self.times = Some((first, prefix.time));
                self.event(prefix.time, head, bytes);
            }
            _ => self.log.damaged += u64::from(is_whole),
        }
    }

    fn payload_line(&mut self, payload: &[u8], bytes: u64) {
        let Some(of) = &self.payload else {
            // Behind a hole or a damaged line, to which it belongs.
            return;
        };
        if let Some(row) = self.log.events.get_mut(&of.counted) {
            row.bytes += bytes;
        }
        if of.want != Want::Nothing && self.text.len() + payload.len() < MOST_PAYLOAD {
            self.text.extend_from_slice(payload);
            self.text.push(b'\n');
        }
    }

    fn event(&mut self, at: PrefixTime, head: Head, bytes: u64) {
        let (name, of) = match &head.content {
            Content::Artifact(name) => events::artifact(name),
            _ => (head.event.clone(), events::use_of(&head.event)),
        };
        let name = if of == EventUse::Unknown { name.chars().take(80).collect() } else { name };
        let counted = events::count(&mut self.log.events, name, of, bytes);
        if self.log.rank.is_none() {
            self.log.rank = head.rank;
        }
        let want = self.want(&head);
        if head.has_payload {
            self.payload = Some(Payload { want, counted, id: head.id, at });
        }
        match head.content {
            Content::Text(text, number) => self.intern(text, number),
            Content::Start(stack) => self.start(at, head.id, head.attempt, &stack),
            Content::Metrics(metrics) => {
                self.metrics(at, head.id, head.attempt, &head.event, *metrics)
            }
            Content::Code(path) if self.log.code.len() < MOST_ROWS => {
                let path = path.map(|path| short(&path));
                self.log.code.push(GeneratedCode { id: head.id, path, kernels: None });
            }
            Content::Nothing | Content::Artifact(_) | Content::Code(_) => {}
        }
    }

    /// What is read of an event's payload.
    fn want(&self, head: &Head) -> Want {
        let name = match &head.content {
            Content::Artifact(name) => name.as_str(),
            _ => head.event.as_str(),
        };
        match name {
            "chromium_event" if self.zone.is_none() => Want::Anchor,
            "dynamo_graph_break_reason" => Want::Break,
            "recompile_reasons" => Want::Reasons,
            "fx_graph_cache_hit" | "fx_graph_bundled_cache_hit" => {
                Want::Cache("fx_graph", CacheOutcome::Hit)
            }
            "fx_graph_cache_miss" => Want::Cache("fx_graph", CacheOutcome::Miss),
            "fx_graph_cache_bypass" => Want::Cache("fx_graph", CacheOutcome::Bypass),
            "aotautograd_cache_hit" => Want::Cache("aotautograd", CacheOutcome::Hit),
            "aotautograd_cache_miss" => Want::Cache("aotautograd", CacheOutcome::Miss),
            "aotautograd_cache_bypass" => Want::Cache("aotautograd", CacheOutcome::Bypass),
            "dynamo_output_graph" => Want::Graph(GraphStage::Traced),
            "inductor_post_grad_graph" => Want::Graph(GraphStage::Lowered),
            "inductor_output_code" => Want::Code,
            "torch_version" => Want::Version,
            _ => Want::Nothing,
        }
    }

    fn intern(&mut self, text: String, number: u64) {
        if text.len() <= MOST_TEXT && self.strings_bytes + text.len() <= MOST_TEXTS {
            self.strings_bytes += text.len();
            self.strings.insert(number, text);
        }
    }

    fn frame(
        &mut self,
        id: CompileId,
        is_backward: bool,
        at: PrefixTime,
    ) -> Option<&mut CompiledFrame> {
        let next = self.log.frames.len();
        let index = match self.frames.get(&(id, is_backward)) {
            Some(&index) => index,
            None if next >= MOST_ROWS => return None,
            None => {
                self.frames.insert((id, is_backward), next);
                self.log.frames.push(CompiledFrame { id, is_backward, ..CompiledFrame::default() });
                self.began.push((next, at));
                next
            }
        };
        self.log.frames.get_mut(index)
    }

    fn start(&mut self, at: PrefixTime, id: CompileId, attempt: Option<u32>, stack: &[StackFrame]) {
        let place = stack.last();
        let file = place.and_then(|place| self.strings.get(&place.filename?).cloned());
        let Some(frame) = self.frame(id, false, at) else { return };
        frame.attempts = frame.attempts.max(attempt.unwrap_or(0).saturating_add(1));
        if let Some(place) = place {
            frame.function = place.name.as_deref().map(short);
            (frame.file, frame.line) = (file, place.line);
        }
    }

    fn metrics(
        &mut self,
        at: PrefixTime,
        id: CompileId,
        attempt: Option<u32>,
        event: &str,
        metrics: Metrics,
    ) {
        let is_backward = metrics.is_backward(event);
        self.log.states_cuda_graphs |= metrics.states_cuda_graphs();
        if self.zone.is_none()
            && let Some(began) = metrics.start_unix_us()
        {
            // A compilation's prefix is of its end, minutes later perhaps: a zone by quarter hours
            // needs the moment of the prefix itself.
            let end = began.saturating_add(metrics.total_us().unwrap_or(0));
            self.zone = Some(Zone::of(at, end));
        }
        if metrics.is_of_run(event) {
            // No compilation: a backward graph that was compiled with its forward one has none of its
            // own, and one that is made up would have no end.
            let known = [is_backward, false].map(|is_backward| self.frames.get(&(id, is_backward)));
            let index = known.into_iter().flatten().next().copied();
            if let Some(frame) = index.and_then(|index| self.log.frames.get_mut(index)) {
                metrics.add_run(frame);
            }
            return;
        }
        let forward =
            self.frames.get(&(id, false)).and_then(|&at| self.log.frames.get(at)).cloned();
        let Some(frame) = self.frame(id, is_backward, at) else { return };
        frame.attempts = frame.attempts.max(attempt.unwrap_or(0).saturating_add(1));
        metrics.add_to(frame);
        if let Some(forward) = forward.filter(|_| is_backward && frame.function.is_none()) {
            (frame.function, frame.file, frame.line) =
                (forward.function, forward.file, forward.line);
        }
    }

    /// Reads what was kept of a payload.
    fn end_payload(&mut self) {
        let Some(payload) = self.payload.take() else {
            self.text.clear();
            return;
        };
        let bytes = std::mem::take(&mut self.text);
        if payload.want != Want::Nothing {
            self.read_payload(&payload, &String::from_utf8_lossy(&bytes));
        }
        self.text = bytes;
        self.text.clear();
    }

    fn read_payload(&mut self, payload: &Payload, text: &str) {
        let Payload { want, id, at, .. } = *payload;
        match want {
            Want::Nothing => {}
            Want::Anchor => {
                let time = serde_json::from_str::<serde_json::Value>(text).ok();
                let time = time.and_then(|event| event["ts"].as_f64());
                if let Some(us) = time.filter(|us| *us > 1e15 && *us < 1e16) {
                    self.zone = Some(Zone::of(at, us as u64));
                }
            }
            Want::Break if self.log.graph_breaks.len() < MOST_ROWS => {
                self.log
                    .graph_breaks
                    .push(GraphBreak { compile_id: id, ..graph_break::parse(text) });
            }
            Want::Reasons if self.log.recompiled.len() < MOST_ROWS => {
                let reasons = serde_json::from_str::<Vec<String>>(text);
                let reasons = reasons.unwrap_or_else(|_| vec![text.trim().to_owned()]);
                let reasons = reasons.iter().take(64).map(|reason| one_line(reason)).collect();
                self.log.recompiled.push(Recompiled { id, reasons });
            }
            Want::Cache(cache, outcome) if self.log.caches.len() < MOST_ROWS => {
                let why = (outcome == CacheOutcome::Bypass).then(|| bypass(text)).flatten();
                self.log.caches.push(CacheUse { cache, outcome, id, why });
            }
            Want::Graph(stage) if self.log.graphs.len() < MOST_ROWS => {
                self.log.graphs.push((id, stage, count_operators(text)));
            }
            Want::Code => {
                if let Some(code) = self.log.code.last_mut().filter(|code| code.id == id) {
                    code.kernels = Some(find_kernels(text));
                }
            }
            Want::Version => {
                let version = serde_json::from_str::<serde_json::Value>(text).ok();
                let version = version.as_ref().and_then(|all| all["pytorch_version"].as_str());
                self.log.torch = version.map(short);
            }
            Want::Break | Want::Reasons | Want::Cache(..) | Want::Graph(_) => {}
        }
    }

    fn finish(mut self) -> CompileLog {
        self.end_payload();
        if let (Some(zone), Some((first, last))) = (self.zone, self.times) {
            self.log.extent_unix_us = Some((zone.unix_us(first), zone.unix_us(last)));
            for (index, at) in std::mem::take(&mut self.began) {
                self.log.frames[index].start_unix_us.get_or_insert(zone.unix_us(at));
            }
        }
        self.derive();
        self.log
    }

    /// What versions of PyTorch do not log, and frames show all the same: that there was a break, by
    /// the name of the function behind it; that a function was compiled again, by its number.
    fn derive(&mut self) {
        let log = &mut self.log;
        if log.graph_breaks.is_empty() {
            let behind = log.frames.iter().filter(|frame| frame.id.compile == Some(0));
            log.graph_breaks = behind.filter_map(graph_break::before).collect();
        }
        let known: FxHashSet<CompileId> = log.recompiled.iter().map(|one| one.id).collect();
        let again = log.frames.iter().filter(|frame| {
            let is_again = frame.id.compile.is_some_and(|number| number > 0);
            is_again && !frame.is_backward && !known.contains(&frame.id)
        });
        let found = again.map(|frame| Recompiled {
            id: frame.id,
            reasons: frame.recompile_reason.iter().map(|reason| one_line(reason)).collect(),
        });
        let found: Vec<Recompiled> = found.collect();
        log.recompiled.extend(found);
    }
}

/// A guard as one line, without the stack that newer versions add.
fn one_line(reason: &str) -> String {
    let first = reason.lines().next().unwrap_or_default();
    short(&first.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Why a cache was bypassed.
fn bypass(text: &str) -> Option<String> {
    let found = serde_json::from_str::<serde_json::Value>(text).ok()?;
    let of = |all: &serde_json::Value| {
        let keys = ["cache_bypass_reason", "cache_bypass_exception_type"];
        keys.iter().find_map(|key| all[*key].as_str().map(one_line))
    };
    of(&found).or_else(|| of(&found["args"]))
}
