//! Converts the payloads of the agent's records to rows of the trace.

use super::devices::UsedDevices;
use super::joins::Joins;
use super::texts::Texts;
use super::thread_rows::ThreadRows;
use crate::output::files::OpenFile;
use crate::shared::clock::LATEST_NS;
use std::collections::HashMap;
use tprof_trace::model::*;
use tprof_wire::gpu;

/// CUPTI's number for "no stream" and "no event".
const NONE: u32 = u32::MAX;

/// Converts the agent's records of one process to rows.
pub struct Rows {
    pub process: ProcessIndex,
    pub joins: Joins,
    pub texts: Texts,
    pub devices: UsedDevices,
    /// Stream-ordered pools by device and address: the bytes that the pool reserves, and the bytes
    /// that it has given out.
    pools: HashMap<(u32, u64), [u64; 2]>,
}

impl Rows {
    /// Returns a converter for a process.
    pub fn new(process: ProcessIndex) -> Rows {
        Rows {
            process,
            joins: Joins::default(),
            texts: Texts::default(),
            devices: UsedDevices::default(),
            pools: HashMap::new(),
        }
    }

    /// Returns the begin of work on the run's clock, and the duration on CUPTI's clock. The
    /// duration isn't converted, so that errors in the joined clocks don't change it.
    fn span_of(&self, start: u64, end: u64) -> (u64, u64) {
        (self.joins.ns(start), end.saturating_sub(start).min(LATEST_NS))
    }

    pub fn kernel(&mut self, k: &gpu::Kernel, place: &mut ThreadRows<'_>) -> Kernel {
        let (start_ns, duration_ns) = self.span_of(k.start, k.end);
        let name = self.texts.demangled(k.name, place.writer());
        // The record of a whole graph has no grid, and no values of a kernel.
        let of_kernel = |value: u32| (k.grid_x != 0).then_some(value);
        let measured = |ns: u64| (ns != 0).then(|| self.joins.ns(ns));
        Kernel {
            start_ns,
            duration_ns,
            process: self.process,
            device: k.device,
            context: k.context,
            stream: u64::from(k.stream),
            name,
            correlation: Some(u64::from(k.correlation)),
            grid: [k.grid_x, k.grid_y, k.grid_z],
            block: [k.block_x, k.block_y, k.block_z],
            registers: of_kernel(k.registers),
            shared_static_bytes: of_kernel(k.shared_static),
            shared_dynamic_bytes: of_kernel(k.shared_dynamic),
            graph: (k.graph != 0).then_some(k.graph),
            graph_node: (k.node != 0).then_some(k.node),
            queued_ns: measured(k.queued),
            submitted_ns: measured(k.submitted),
            ..Kernel::default()
        }
    }

    pub fn copy(&mut self, c: &gpu::Copy) -> MemoryCopy {
        let (start_ns, duration_ns) = self.span_of(c.start, c.end);
        let fill = c.kind == gpu::FILL;
        MemoryCopy {
            start_ns,
            duration_ns,
            process: self.process,
            device: c.device,
            context: c.context,
            stream: u64::from(c.stream),
            kind: if fill { CopyKind::Memset } else { copy_kind(c.kind) },
            from: if fill { MemoryKind::Unknown } else { memory_kind(c.from) },
            to: memory_kind(c.to),
            bytes: Some(c.bytes),
            asynchronous: Some(c.flags & 1 != 0),
            peer: c.peer.checked_sub(1),
            correlation: Some(u64::from(c.correlation)),
            graph: (c.graph != 0).then_some(c.graph),
            graph_node: (c.node != 0).then_some(c.node),
            ..MemoryCopy::default()
        }
    }

    pub fn call(&mut self, c: &gpu::Call, place: &mut ThreadRows<'_>) -> Span {
        let (start_ns, duration_ns) = self.span_of(c.start, c.end);
        let name = self.texts.call(c.name, place.writer());
        Span {
            start_ns,
            duration_ns,
            process: self.process,
            thread: place.thread(self.process, c.thread, start_ns),
            kind: if c.driver == 0 { SpanKind::Runtime } else { SpanKind::Driver },
            name,
            correlation: Some(u64::from(c.correlation)),
            status: Some(c.result),
            ..Span::default()
        }
    }

    pub fn wait(&mut self, w: &gpu::Wait) -> Synchronization {
        let (start_ns, duration_ns) = self.span_of(w.start, w.end);
        let there = |number: u32| (number != NONE).then_some(u64::from(number));
        Synchronization {
            start_ns,
            duration_ns,
            process: self.process,
            device: self.devices.of_context(w.context),
            context: w.context,
            stream: there(w.stream),
            kind: match w.kind {
                1 => SyncKind::Event,
                2 => SyncKind::StreamWaitEvent,
                3 => SyncKind::Stream,
                4 => SyncKind::Context,
                _ => SyncKind::Unknown,
            },
            correlation: Some(u64::from(w.correlation)),
            event: there(w.event),
            ..Synchronization::default()
        }
    }

    pub fn memory(&mut self, m: &gpu::Memory, thread: ThreadIndex) -> DeviceAllocation {
        const RELEASE: u32 = 2;
        let free = m.operation == RELEASE;
        let kind = memory_kind(m.kind);
        let of_host = matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned);
        DeviceAllocation {
            time_ns: self.joins.ns(m.time),
            process: self.process,
            thread,
            allocator: if m.asynchronous != 0 { Allocator::Pool } else { Allocator::Library },
            free,
            device: (!of_host).then_some(m.device),
            address: m.address,
            // If CUPTI reports no size for a free, the size is that of the last allocation at the
            // address.
            bytes: (!free || m.bytes != 0).then_some(m.bytes),
            kind,
            stream: (m.asynchronous != 0).then_some(u64::from(m.stream)),
            correlation: Some(u64::from(m.correlation)),
            ..DeviceAllocation::default()
        }
    }

    /// Writes the bytes of all stream-ordered pools of a device as counters, because one pool has
    /// changed.
    pub fn pools(&mut self, m: &gpu::Memory, file: &mut OpenFile) {
        if m.pool == 0 {
            return;
        }
        self.pools.insert((m.device, m.pool), [m.pool_held, m.pool_given]);
        let time_ns = self.joins.ns(m.time);
        let names = [counter::POOL_HELD_BYTES, counter::POOL_GIVEN_BYTES];
        for (at, name) in names.into_iter().enumerate() {
            let of_device = self.pools.iter().filter(|((device, _), _)| *device == m.device);
            let value = of_device.map(|(_, sizes)| sizes[at] as f64).sum();
            let (process, device, name) =
                (Some(self.process), Some(m.device), file.writer.name(name));
            file.counter(Counter { time_ns, process, device, name, value });
        }
    }

    pub fn overhead(
        &mut self,
        o: &gpu::Overhead,
        agent: ThreadIndex,
        place: &mut ThreadRows<'_>,
    ) -> Span {
        let (start_ns, duration_ns) = self.span_of(o.start, o.end);
        let thread = match o.thread {
            0 => agent,
            tid => place.thread(self.process, tid, start_ns),
        };
        let name = match o.kind {
            1 => "driver compiler",
            0x1_0000 => "CUPTI buffer flush",
            0x2_0000 => "CUPTI instrumentation",
            0x3_0000 => "CUPTI resources",
            0x4_0000 => "module loading by the runtime",
            0x5_0000 => "lazy function loading",
            0x6_0000 => "command buffer full",
            0x7_0000 => "CUPTI buffer request",
            0x8_0000 => "setting up unified memory",
            _ => "CUPTI overhead",
        };
        Span {
            start_ns,
            duration_ns,
            process: self.process,
            thread,
            kind: SpanKind::Overhead,
            name: place.writer().name(name),
            ..Span::default()
        }
    }
}

fn copy_kind(number: u32) -> CopyKind {
    match number {
        1 | 3 => CopyKind::HostToDevice,
        2 | 4 => CopyKind::DeviceToHost,
        5..=8 => CopyKind::DeviceToDevice,
        9 => CopyKind::HostToHost,
        10 => CopyKind::PeerToPeer,
        _ => CopyKind::Unknown,
    }
}

fn memory_kind(number: u32) -> MemoryKind {
    match number {
        1 => MemoryKind::Pageable,
        2 => MemoryKind::Pinned,
        3 => MemoryKind::Device,
        4 => MemoryKind::Array,
        5 => MemoryKind::Managed,
        6 => MemoryKind::DeviceStatic,
        7 => MemoryKind::ManagedStatic,
        _ => MemoryKind::Unknown,
    }
}

/// Converts a `CUpti_ExternalCorrelationKind`.
pub(super) fn external_kind(number: u32) -> ExternalKind {
    match number {
        2 => ExternalKind::OpenAcc,
        3 => ExternalKind::Custom0,
        4 => ExternalKind::Custom1,
        5 => ExternalKind::Custom2,
        _ => ExternalKind::Unknown,
    }
}
