//! Writes packets, and numbers the sequences to which they belong. Each rank has two sequences.

use std::io::{self, Write};

use super::fields::{clock_snapshot, defaults, packet, trace};
use crate::proto::Proto;

/// Number of bytes to collect before they are written.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes the stream of packets.
pub(super) struct PacketWriter<W: Write> {
    to: W,
    buffer: Proto,
}

impl<W: Write> PacketWriter<W> {
    pub fn new(to: W) -> PacketWriter<W> {
        PacketWriter { to, buffer: Proto::default() }
    }

    /// Writes one packet.
    pub fn packet(&mut self, fields: impl FnOnce(&mut Proto)) -> io::Result<()> {
        let open = self.buffer.open(trace::PACKET);
        fields(&mut self.buffer);
        self.buffer.close(open);
        if self.buffer.bytes().len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(self.buffer.bytes())?;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the number of bytes that wait to be written.
    pub fn buffered(&self) -> u64 {
        self.buffer.bytes().len() as u64
    }

    /// Returns the destination of the packets.
    pub fn inner(&self) -> &W {
        &self.to
    }

    /// Writes the remaining bytes, and returns the destination.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.to)
    }
}

/// How long before the run's beginning an event may be. Clocks of devices and of other hosts are
/// not exact, and imported traces may begin at any time.
const LEAD_NS: u64 = 3_600_000_000_000;

/// The trace's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The run's beginning on this clock.
    pub zero_ns: u64,
    /// Whether this clock is the wall clock.
    pub is_wall: bool,
}

impl Clock {
    /// Creates a clock that counts from 1970 if the run has wall time. Otherwise it counts from
    /// [`LEAD_NS`] before the run's beginning, so that times shortly before it aren't negative.
    pub fn new(unix_ns: u64) -> Clock {
        match unix_ns > LEAD_NS {
            true => Clock { zero_ns: unix_ns, is_wall: true },
            false => Clock { zero_ns: LEAD_NS, is_wall: false },
        }
    }
}

/// A sequence of packets. A packet's time is stored as the difference from the previous packet's
/// time.
pub(super) struct Sequence {
    id: u64,
    last_ns: u64,
}

impl Sequence {
    /// Begins a sequence, and defines its clock.
    pub fn begin<W: Write>(id: u64, at: Clock, out: &mut PacketWriter<W>) -> io::Result<Sequence> {
        let first_ns = at.zero_ns - LEAD_NS;
        out.packet(|fields| {
            fields.uint(packet::SEQUENCE, id);
            fields.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            let snapshot = fields.open(packet::CLOCK_SNAPSHOT);
            let mut clock = |id: u64, incremental: bool| {
                let clock = fields.open(clock_snapshot::CLOCKS);
                fields.uint(clock_snapshot::CLOCK_ID, id);
                fields.uint(clock_snapshot::TIMESTAMP, first_ns);
                if incremental {
                    fields.uint(clock_snapshot::IS_INCREMENTAL, 1);
                }
                fields.close(clock);
            };
            clock(clock_snapshot::BOOTTIME, false);
            if at.is_wall {
                clock(clock_snapshot::REALTIME, false);
            }
            clock(clock_snapshot::OWN, true);
            fields.close(snapshot);
            let set = fields.open(packet::DEFAULTS);
            fields.uint(defaults::CLOCK_ID, clock_snapshot::OWN);
            fields.close(set);
        })?;
        Ok(Sequence { id, last_ns: first_ns })
    }

    /// Adds the sequence and the time to a packet. Times must not decrease.
    pub fn at(&mut self, time_ns: u64, fields: &mut Proto) {
        fields.uint(packet::TIMESTAMP, time_ns.saturating_sub(self.last_ns));
        self.last_ns = self.last_ns.max(time_ns);
        self.of(fields);
    }

    /// Adds the sequence to a packet without a time.
    pub fn of(&self, fields: &mut Proto) {
        fields.uint(packet::SEQUENCE, self.id);
        fields.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
    }
}
