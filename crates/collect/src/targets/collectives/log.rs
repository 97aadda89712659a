//! Reads NCCL's own log, where NCCL states the transport of each connection between ranks. No other
//! interface of NCCL tells it.
//!
//! ```text
//! node1:71:80 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 16 … commId 0x5ae7 - Init START
//! node1:71:80 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
//! node1:71:80 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
//! node1:71:80 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 16 … commId 0x5ae7 - Init COMPLETE
//! ```
//!
//! The lines are from NCCL 2.4 to 2.31 (`src/init.cc`, `src/transport/*.cc`). A line of a connection
//! doesn't name its communicator, except in RCCL. If the thread is making a communicator, the line
//! is that communicator's. From version 2.22 on, NCCL connects at the first use: then it is the only
//! communicator with the line's rank, or unknown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead};

/// A communicator in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedCommunicator {
    /// Its address in the process.
    pub address: u64,
    /// How many earlier communicators in the log had the same address.
    pub earlier: usize,
    /// NCCL's `commId`, which the profiler plugin receives as well; 0 before version 2.17.
    pub hash: u64,
    /// This rank's number in it.
    pub rank: u32,
    /// Number of ranks in it.
    pub ranks: u32,
    is_made: bool,
    has_ended: bool,
    lines: Lines,
}

/// A connection of a communicator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connected {
    /// Rank in the communicator that sends; `None` if a switch does.
    pub from: Option<u32>,
    /// Rank in the communicator that receives; `None` if a switch does.
    pub to: Option<u32>,
    /// Whether the process is the one that sends.
    pub sends: bool,
    /// The transport, as NCCL writes it.
    pub transport: String,
}

/// The channels of each connection.
type Lines = BTreeMap<Connected, BTreeSet<String>>;

/// What a process's log tells.
#[derive(Debug, Default)]
pub struct Log {
    /// The communicators, in the order of the log.
    pub communicators: Vec<LoggedCommunicator>,
    /// Connections of one of several communicators.
    unknown: Lines,
    /// The communicator that each thread is making.
    making: HashMap<u32, usize>,
    /// Whether the log says when the making of a communicator begins: from version 2.17 on.
    has_starts: bool,
    /// Without starts: connections of a thread that may be making a communicator.
    unnamed: HashMap<u32, Vec<Line>>,
}

/// A line about a connection.
#[derive(Clone, Debug)]
struct Line {
    channel: String,
    connected: Connected,
    /// Own rank in the communicator.
    own: Option<u32>,
    /// Address of the communicator, which RCCL names.
    address: Option<u64>,
}

impl Log {
    /// Reads a log to its end.
    pub fn read(mut from: impl BufRead) -> io::Result<Log> {
        let mut log = Log::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            log.line(String::from_utf8_lossy(&line).trim_end());
        }
        for line in std::mem::take(&mut log.unnamed).into_values().flatten() {
            log.connect(line);
        }
        Ok(log)
    }

    /// Returns all connections with the index of their communicator, and their number of channels.
    pub fn connections(&self) -> impl Iterator<Item = (Option<usize>, &Connected, u32)> {
        let known = self.communicators.iter().enumerate();
        let known = known.map(|(at, communicator)| (Some(at), &communicator.lines));
        known.chain([(None, &self.unknown)]).flat_map(|(at, lines)| {
            lines.iter().map(move |(connected, channels)| (at, connected, channels.len() as u32))
        })
    }

    fn line(&mut self, text: &str) {
        let Some((head, text)) = text.split_once(" NCCL INFO ") else { return };
        // The head is `[TIME] HOST:PID:TID [DEVICE]`, and the time may be missing.
        let thread = head.rsplit_once(" [").and_then(|(of, _)| of.rsplit_once(':'));
        let thread = thread.and_then(|(_, tid)| tid.parse().ok()).unwrap_or(0);
        if let Some(line) = Line::of(text) {
            match self.making.get(&thread) {
                Some(made) => line.add_to(&mut self.communicators[*made].lines),
                None if self.has_starts => self.connect(line),
                None => self.unnamed.entry(thread).or_default().push(line),
            }
        } else if let Some(communicator) = LoggedCommunicator::of(text) {
            self.communicator(communicator, text, thread);
        }
    }

    fn communicator(&mut self, new: LoggedCommunicator, text: &str, thread: u32) {
        let same = |known: &LoggedCommunicator| known.address == new.address && !known.has_ended;
        let known = self.communicators.iter().rposition(same);
        if text.ends_with("Init START") {
            self.has_starts = true;
            if let Some(known) = known {
                self.communicators[known].has_ended = true;
            }
            let made = self.add(new);
            self.making.insert(thread, made);
        } else if text.ends_with("Init COMPLETE") {
            let unmade = known.filter(|at| !self.communicators[*at].is_made);
            let was_named = unmade.is_some();
            let made = unmade.unwrap_or_else(|| self.add(new));
            self.communicators[made].is_made = true;
            self.making.retain(|_, at| *at != made);
            if !was_named {
                let unnamed = self.unnamed.entry(thread).or_default();
                let communicator = &mut self.communicators[made];
                let own = unnamed.extract_if(.., |line| line.is_while_made(communicator));
                let own: Vec<Line> = own.collect();
                own.into_iter().for_each(|line| line.add_to(&mut communicator.lines));
            }
        } else if let Some(known) = known
            && (text.ends_with("Destroy COMPLETE") || text.ends_with("Abort COMPLETE"))
        {
            self.communicators[known].has_ended = true;
        }
    }

    fn add(&mut self, new: LoggedCommunicator) -> usize {
        let earlier = self.communicators.iter().filter(|old| old.address == new.address).count();
        self.communicators.push(LoggedCommunicator { earlier, ..new });
        self.communicators.len() - 1
    }

    /// Adds a line of no thread that is making a communicator.
    fn connect(&mut self, line: Line) {
        let fits = |known: &LoggedCommunicator| {
            let is_in = |rank: Option<u32>| rank.is_none_or(|rank| rank < known.ranks);
            let is_own = line.own == Some(known.rank);
            let is_named = line.address.is_none_or(|address| address == known.address);
            !known.has_ended
                && known.is_made
                && is_named
                && is_own
                && is_in(line.connected.from)
                && is_in(line.connected.to)
        };
        let mut fitting = self.communicators.iter_mut().filter(|known| fits(known));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => line.add_to(&mut only.lines),
            _ => line.add_to(&mut self.unknown),
        }
    }
}

impl LoggedCommunicator {
    /// Reads `… comm ADDRESS rank N nranks N … commId HASH …`.
    fn of(text: &str) -> Option<LoggedCommunicator> {
        let after = |word: &str| {
            let mut words = text.split(' ').skip_while(|of| *of != word).skip(1);
            words.next()
        };
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        Some(LoggedCommunicator {
            address: after("comm").and_then(hex)?,
            hash: after("commId").and_then(hex).unwrap_or(0),
            rank: after("rank")?.parse().ok()?,
            ranks: after("nranks")?.parse().ok()?,
            ..LoggedCommunicator::default()
        })
    }
}

impl Line {
    /// Reads `Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0`. Before version 2.5 the first word is
    /// `Ring`; `CollNet 00/0 : 3 [send] via COLLNET/SHARP/0` connects with a switch.
    fn of(text: &str) -> Option<Line> {
        let (head, via) = text.split_once(" via ")?;
        let (channel, ends) = head.split_once(" : ")?;
        let is_known =
            ["Channel ", "Ring ", "CollNet ", "Coll "].iter().any(|word| channel.starts_with(word));
        if !is_known {
            return None;
        }
        let receives = ends.contains("[receive]");
        let rank = |text: &str| -> Option<u32> {
            let digits = text.trim_start().split(|of: char| !of.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let (from, to) = match ends.split_once("->") {
            Some((from, to)) => (Some(rank(from)?), Some(rank(to)?)),
            None if receives => (None, Some(rank(ends)?)),
            None => (Some(rank(ends)?), None),
        };
        let (transport, address) = match via.split_once(" comm 0x") {
            Some((transport, rest)) => {
                let digits = rest.split(' ').next().unwrap_or_default();
                (transport, u64::from_str_radix(digits, 16).ok())
            }
            None => (via, None),
        };
        let transport = transport.trim().to_owned();
        let connected = Connected { from, to, sends: !receives, transport };
        let own = if receives { to } else { from };
        Some(Line { channel: channel.to_owned(), connected, own, address })
    }

    /// Whether a thread that has just made this communicator wrote the line meanwhile, and not for
    /// one that it made before. Connections for sends and receives are the second of a channel, and
    /// made at their first use.
    fn is_while_made(&self, made: &LoggedCommunicator) -> bool {
        let is_named = self.address.is_none_or(|address| address == made.address);
        self.own == Some(made.rank) && is_named && !self.channel.ends_with("/1")
    }

    fn add_to(self, lines: &mut Lines) {
        lines.entry(self.connected).or_default().insert(self.channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Log {
        let head = |line: &&str| {
            let (thread, text) = line.split_once(' ').unwrap();
            format!("node1:71:{thread} [0] NCCL INFO {text}\n")
        };
        let text: String = lines.iter().map(head).collect();
        Log::read(text.as_bytes()).unwrap()
    }

    /// The communicator's size, the ends, the transport, and the number of channels.
    type Told<'l> = (Option<u32>, Option<u32>, Option<u32>, &'l str, u32);

    fn told(log: &Log) -> Vec<Told<'_>> {
        let size = |at: Option<usize>| at.map(|at| log.communicators[at].ranks);
        let all = log.connections();
        all.map(|(at, of, channels)| (size(at), of.from, of.to, &*of.transport, channels)).collect()
    }

    #[test]
    fn lines_while_a_communicator_is_made_are_its_own() {
        let log = read(&[
            "80 ncclCommInitRank comm 0x55d0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 9b000 commId 0x5ae77eb5ea4ec1ee - Init START",
            "81 ncclCommInitRank comm 0x66d0 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 9b000 commId 0x77 - Init START",
            "80 Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
            "80 Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            "81 Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
            "80 Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
            "80 CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
            "80 Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
            "80 ncclCommInitRank comm 0x55d0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 9b000 commId 0x5ae77eb5ea4ec1ee - Init COMPLETE",
        ]);
        assert_eq!(log.communicators[0].hash, 0x5ae7_7eb5_ea4e_c1ee);
        let wanted = [
            (Some(16), Some(8), Some(0), "NET/IB/0/GDRDMA", 1),
            (Some(16), Some(0), None, "COLLNET/SHARP/0/GDRDMA", 1),
            (Some(16), Some(0), Some(1), "P2P/CUMEM", 2),
            (Some(4), Some(0), Some(1), "SHM/direct/direct", 1),
        ];
        let told = told(&log);
        assert!(told.len() == 4 && wanted.iter().all(|row| told.contains(row)), "{told:?}");
    }

    #[test]
    fn lines_at_the_first_use_are_of_the_only_communicator_with_the_rank() {
        let made = |address: &str, rank: u32, ranks: u32, what: &str| {
            format!(
                "80 [Rank {rank}] ncclCommSplit comm {address} rank {rank} nranks {ranks} cudaDev 1 - {what}"
            )
        };
        let both = [
            made("0x10", 5, 8, "Init START"),
            made("0x10", 5, 8, "Init COMPLETE"),
            made("0x20", 1, 4, "Init START"),
            made("0x20", 1, 4, "Init COMPLETE"),
        ];
        let both: Vec<&str> = both.iter().map(String::as_str).collect();
        let later = [
            "90 Channel 00/0 : 5[5] -> 6[6] via P2P/IPC/read",
            "91 Channel 00/0 : 3[3] -> 1[1] [receive] via NET/Socket/0",
        ];
        let log = read(&[&both[..], &later[..]].concat());
        assert_eq!(
            told(&log),
            [
                (Some(8), Some(5), Some(6), "P2P/IPC/read", 1),
                (Some(4), Some(3), Some(1), "NET/Socket/0", 1)
            ]
        );
        // Rank 1 of another communicator of four.
        let third = [made("0x30", 1, 4, "Init START"), made("0x30", 1, 4, "Init COMPLETE")];
        let third: Vec<&str> = third.iter().map(String::as_str).collect();
        let log = read(&[&both[..], &third[..], &later[..]].concat());
        assert_eq!(told(&log)[1].0, None, "two communicators fit");
        let ended = "80 comm 0x30 rank 1 nranks 4 cudaDev 1 busId 9b000 - Destroy COMPLETE";
        let again = made("0x30", 1, 4, "Init START");
        let log = read(&[&both[..], &third[..], &[ended, &again], &later[..]].concat());
        assert_eq!(log.communicators.len(), 4);
        assert_eq!((log.communicators[2].earlier, log.communicators[3].earlier), (0, 1));
    }

    #[test]
    fn old_logs_name_a_communicator_only_at_its_end_and_rccl_with_each_line() {
        let log = read(&[
            "80 Ring 00 : 35 -> 34 [send] via NET/Socket/0",
            "80 comm 0x7efe60002250 rank 35 nranks 64 cudaDev 0 nvmlDev 0 - Init COMPLETE",
        ]);
        assert_eq!(told(&log), [(Some(64), Some(35), Some(34), "NET/Socket/0", 1)]);
        let log = read(&[
            "80 comm 0x10 rank 1 nranks 4 cudaDev 0 - Init COMPLETE",
            "80 Channel 00/1 : 1[0] -> 2[0] [send] via NET/Socket/0",
            "80 Channel 00/0 : 1[0] -> 2[0] [send] via NET/IB/0",
            "80 comm 0x20 rank 1 nranks 8 cudaDev 0 - Init COMPLETE",
        ]);
        let wanted = [
            (Some(8), Some(1), Some(2), "NET/IB/0", 1),
            (None, Some(1), Some(2), "NET/Socket/0", 1),
        ];
        assert_eq!(told(&log), wanted, "a send between the two may be of either");
        let log = read(&[
            "80 comm 0x10 rank 1 nranks 4 cudaDev 0 - Init COMPLETE",
            "80 comm 0x20 rank 1 nranks 4 cudaDev 0 - Init COMPLETE",
            "80 Channel 05/0 : 1[e000] -> 0[b000] via P2P/direct pointer comm 0x20 nRanks 04",
        ]);
        let of = log.connections().next().unwrap();
        assert_eq!((of.0, &*of.1.transport), (Some(1), "P2P/direct pointer"));
    }

    #[test]
    fn other_lines_and_damaged_ones_are_passed_over() {
        let text = b"NCCL version 2.21.5+cuda12.4\n\
            node1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB via OOB\n\
            node1:1:2 [0] NCCL INFO Channel 00/0 : x[0] -> 1[0] via P2P/IPC\n\
            [2026-12-01 10:00:00] node1:1:2 [0] init.cc:99 NCCL WARN no\xff memory\n\
            [1764583200.123456] node1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via SHM/di";
        let log = Log::read(&text[..]).unwrap();
        assert_eq!(told(&log), [(None, Some(0), Some(1), "SHM/di", 1)]);
    }
}
