//! Converts device events: kernels, copies, waits, and intervals that are not work.

use crate::builder::{Builder, Interval};
use crate::categories::stream_of;
use crate::error::ImportError;
use crate::event::Event;
use crate::key::Key;
use crate::losses::LossReason;
use crate::number;
use crate::stream_overlaps::StreamWork;
use crate::threads::MAIN;
use tprof_trace::hash::{fnv1a, joined};
use tprof_trace::model::*;

/// Returns the device and stream of an event. Kineto writes them both into `args` and in place of
/// the `pid` and the `tid`.
fn place(event: &mut Event<'_>) -> (u32, Option<u64>) {
    let fields = event.fields();
    let device = event.take_u32(Key::Device);
    let device = device.or_else(|| {
        number::unsigned(event.inner(fields.pid)).and_then(|pid| u32::try_from(pid).ok())
    });
    let stream = match event.has(Key::Stream) {
        true => event.take_u64(Key::Stream),
        false => {
            let tid = event.inner(fields.tid);
            number::unsigned(tid).or_else(|| stream_of(tid))
        }
    };
    (device.unwrap_or(0), stream)
}

/// Parses an array such as `[1, 2, 3]`.
fn three(text: &[u8]) -> Option<[u32; 3]> {
    let inner = text.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut numbers = inner.split(|byte| *byte == b',');
    let mut next = || u32::try_from(number::unsigned(numbers.next()?.trim_ascii())?).ok();
    let result = [next()?, next()?, next()?];
    numbers.next().is_none().then_some(result)
}

fn take_three(event: &mut Event<'_>, key: Key) -> [u32; 3] {
    match event.peek(key).and_then(three) {
        Some(numbers) => {
            event.take(key);
            numbers
        }
        None => [0; 3],
    }
}

impl Builder {
    /// Whether a kernel or a copy has a duration, and a plausible time if it names a stream.
    /// Implausible work is counted as lost.
    #[inline]
    fn is_plausible(
        &mut self,
        event: &mut Event<'_>,
        at: Interval,
        (device, stream): (u32, Option<u64>),
    ) -> bool {
        if at.duration_ns == 0 {
            self.output.tally.count_loss(LossReason::Unmeasured);
            return false;
        }
        let Some(stream) = stream else { return true };
        // The stream's key contains everything that may tell streams apart.
        let fields = event.fields();
        let place = [fields.pid, fields.tid].map(|place| fnv1a(event.text(place)));
        let mut number = |key| event.peek(key).map(number::unquoted).and_then(number::unsigned);
        let context = number(Key::Context).unwrap_or(0);
        let work = StreamWork {
            stream: joined(&[place[0], place[1], device.into(), context, stream]),
            start_ns: at.start_ns,
            duration_ns: at.duration_ns,
            launch: number(Key::Correlation).filter(|launch| *launch != 0),
        };
        self.passes.is_plausible_work(work, &mut self.output.tally)
    }

    /// Reads a kernel.
    #[inline]
    pub fn kernel(&mut self, mut event: Event<'_>, at: Interval) -> Result<(), ImportError> {
        let (device, stream) = place(&mut event);
        if !self.is_plausible(&mut event, at, (device, stream)) {
            return Ok(());
        }
        self.threads.on_device(at.start_ns, at.end_ns());
        // Kineto writes 0 for a value that it did not measure. Today, it never measures this one.
        if event.peek(Key::Queued) == Some(b"0") {
            event.take(Key::Queued);
        }
        let name = event.inner(event.fields().name);
        let mut kernel = Kernel {
            start_ns: at.start_ns,
            duration_ns: at.duration_ns,
            process: MAIN,
            device,
            context: event.take_u32(Key::Context).unwrap_or(0),
            stream: stream.unwrap_or(0),
            name: self.output.name(name),
            correlation: event.take_u64(Key::Correlation),
            external: event.take_u64(Key::External),
            grid: take_three(&mut event, Key::Grid),
            block: take_three(&mut event, Key::Block),
            registers: event.take_u32(Key::Registers),
            // The value is the sum of static and dynamic shared memory. A trace does not tell them
            // apart, so the sum is stored as dynamic.
            shared_dynamic_bytes: event.take_u32(Key::SharedMemory),
            graph: event.take_u32(Key::Graph),
            graph_node: event.take_u64(Key::GraphNode),
            ..Kernel::default()
        };
        self.collectives.kernel(&kernel, name, &mut event, &mut self.output);
        kernel.args = self.output.args(&event);
        self.kernels.push(kernel, &mut self.output)
    }

    /// Reads a copy or a memset.
    #[inline]
    pub fn copy(&mut self, mut event: Event<'_>, at: Interval) -> Result<(), ImportError> {
        let (device, stream) = place(&mut event);
        if !self.is_plausible(&mut event, at, (device, stream)) {
            return Ok(());
        }
        self.threads.on_device(at.start_ns, at.end_ns());
        let fields = event.fields();
        let name = event.inner(fields.name);
        let is_memset = event.inner(fields.category).ends_with(b"emset");
        let (mut kind, from, to) = direction(name);
        if is_memset {
            kind = CopyKind::Memset;
        } else if kind == CopyKind::Unknown {
            kind = event.peek(Key::Kind).map_or(kind, |text| direction(number::unquoted(text)).0);
        }
        let copy = MemoryCopy {
            start_ns: at.start_ns,
            duration_ns: at.duration_ns,
            process: MAIN,
            device,
            context: event.take_u32(Key::Context).unwrap_or(0),
            stream: stream.unwrap_or(0),
            kind,
            from,
            to,
            bytes: event.take_u64(Key::Bytes),
            name: self.output.name(name),
            correlation: event.take_u64(Key::Correlation),
            external: event.take_u64(Key::External),
            graph: event.take_u32(Key::Graph),
            graph_node: event.take_u64(Key::GraphNode),
            args: self.output.args(&event),
            ..MemoryCopy::default()
        };
        self.copies.push(copy, &mut self.output)
    }

    /// Reads a wait for a device.
    pub fn synchronization(
        &mut self,
        mut event: Event<'_>,
        at: Interval,
    ) -> Result<(), ImportError> {
        self.threads.on_device(at.start_ns, at.end_ns());
        let (device, stream) = place(&mut event);
        let name = event.inner(event.fields().name);
        let kind = event.peek(Key::SyncKind).map_or(name, number::unquoted);
        if kind == name {
            event.take(Key::SyncKind);
        }
        let synchronization = Synchronization {
            start_ns: at.start_ns,
            duration_ns: at.duration_ns,
            process: MAIN,
            device: Some(device),
            context: event.take_u32(Key::Context).unwrap_or(0),
            stream,
            kind: match kind {
                b"Event Sync" | b"Event Synchronize" => SyncKind::Event,
                b"Stream Wait Event" => SyncKind::StreamWaitEvent,
                b"Stream Sync" | b"Stream Synchronize" => SyncKind::Stream,
                b"Context Sync" | b"Context Synchronize" | b"Device Sync" => SyncKind::Context,
                _ => SyncKind::Unknown,
            },
            correlation: event.take_u64(Key::Correlation),
            external: event.take_u64(Key::External),
            event: event.take_u64(Key::SyncEvent),
            event_stream: event.take_u64(Key::EventStream),
            event_correlation: event.take_u64(Key::SyncEventCorrelation),
            name: self.output.name(name),
            args: self.output.args(&event),
        };
        self.synchronizations.push(synchronization, &mut self.output)
    }

    /// Reads an annotation's interval on a stream, or a range of the range profiler.
    pub fn device_span(
        &mut self,
        mut event: Event<'_>,
        at: Interval,
        kind: DeviceSpanKind,
    ) -> Result<(), ImportError> {
        self.threads.on_device(at.start_ns, at.end_ns());
        let (device, stream) = place(&mut event);
        let span = DeviceSpan {
            start_ns: at.start_ns,
            duration_ns: at.duration_ns,
            process: MAIN,
            device,
            stream,
            kind,
            name: self.output.name(event.inner(event.fields().name)),
            category: match kind {
                DeviceSpanKind::Other => self.output.name(event.inner(event.fields().category)),
                _ => NameId(0),
            },
            external: event.take_u64(Key::External),
            correlation: event.take_u64(Key::Correlation),
            args: self.output.args(&event),
        };
        self.device_spans.push(span, &mut self.output)
    }
}

/// Parses a copy's name: `Memcpy HtoD (Pinned -> Device)`, `CopyHostToDevice`, `HtoD`.
fn direction(name: &[u8]) -> (CopyKind, MemoryKind, MemoryKind) {
    let text = String::from_utf8_lossy(name);
    let kinds = [
        (CopyKind::HostToDevice, "HtoD", "HostToDevice"),
        (CopyKind::DeviceToHost, "DtoH", "DeviceToHost"),
        (CopyKind::DeviceToDevice, "DtoD", "DeviceToDevice"),
        (CopyKind::HostToHost, "HtoH", "HostToHost"),
        (CopyKind::PeerToPeer, "PtoP", "PeerToPeer"),
    ];
    let kind = kinds.iter().find(|(_, short, long)| text.contains(short) || text.contains(long));
    let kind = kind.map_or(CopyKind::Unknown, |(kind, ..)| *kind);
    let inside = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let (from, to) =
        match inside.map(|(inside, _)| inside.split_once(" -> ").unwrap_or(("", inside))) {
            Some((from, to)) => (memory(from), memory(to)),
            None => (MemoryKind::Unknown, MemoryKind::Unknown),
        };
    (kind, from, to)
}

fn memory(name: &str) -> MemoryKind {
    match name {
        "Pageable" => MemoryKind::Pageable,
        "Pinned" => MemoryKind::Pinned,
        "Device" => MemoryKind::Device,
        "Array" => MemoryKind::Array,
        "Managed" => MemoryKind::Managed,
        "Device Static" => MemoryKind::DeviceStatic,
        "Managed Static" => MemoryKind::ManagedStatic,
        _ => MemoryKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direction_and_memory_are_parsed_from_names_of_copies() {
        use {CopyKind::*, MemoryKind as Memory};
        assert_eq!(
            direction(b"Memcpy HtoD (Pinned -> Device)"),
            (HostToDevice, Memory::Pinned, Memory::Device)
        );
        assert_eq!(direction(b"Memset (Device)"), (Unknown, Memory::Unknown, Memory::Device));
        assert_eq!(direction(b"CopyDeviceToHost").0, DeviceToHost);
        assert_eq!(direction(b"Memcpy HtoD (Host -> Device)").1, Memory::Unknown);
        assert_eq!(direction(b"x"), (Unknown, Memory::Unknown, Memory::Unknown));
    }

    #[test]
    fn triples_are_three_whole_numbers() {
        assert_eq!(three(b"[1, 2,3]"), Some([1, 2, 3]));
        for bad in ["[1,2]", "[1,2,3,4]", "[1,2,-3]", "1,2,3", "[1,2,4294967296]"] {
            assert_eq!(three(bad.as_bytes()), None);
        }
    }
}
