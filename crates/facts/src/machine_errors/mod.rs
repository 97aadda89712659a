//! Errors of the machine beside a run: what the GPU driver and the kernel report.
//!
//! The collector recognises them ([`MachineError::of_kernel_line`], [`MachineError::xid`]) and
//! stores each as the name of a mark; reports parse that name. So the text on the timeline is all
//! that is stored, and both sides agree on it here.

mod kernel_lines;
mod xids;

use std::fmt;

pub use xids::XidClass;

/// Kinds of errors of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MachineErrorKind {
    /// An error of a GPU, by the number that NVIDIA's driver gives it.
    Xid(u32),
    /// An error of an NVSwitch, by its number.
    Switch(u32),
    /// A GPU's memory had an error that ECC could not correct.
    UncorrectedEcc,
    /// The kernel killed a process because memory was used up.
    OomKill,
    /// A link of a network device went down.
    LinkDown,
    /// A network device reported another error.
    NetworkDevice,
    /// A disk or its controller failed to read or write.
    Storage,
    /// A file system is damaged, or was made read-only.
    FileSystem,
    /// A server of files does not respond.
    FileServer,
    /// A task waited or ran for so long that the kernel reported it.
    StuckTask,
    /// A processor, or memory of the host, had an error.
    Hardware,
    /// A PCIe device had an error.
    Pcie,
    /// A processor was slowed down because it was too hot.
    Overheated,
}

use MachineErrorKind::*;

/// The kinds that have no number, with the words by which they are stored.
const WORDS: [(MachineErrorKind, &str); 11] = [
    (UncorrectedEcc, "uncorrected ECC error"),
    (OomKill, "OOM kill"),
    (LinkDown, "link down"),
    (NetworkDevice, "network device error"),
    (Storage, "storage error"),
    (FileSystem, "file system error"),
    (FileServer, "file server not responding"),
    (StuckTask, "stuck task"),
    (Hardware, "hardware error"),
    (Pcie, "PCIe error"),
    (Overheated, "overheated processor"),
];

impl fmt::Display for MachineErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Xid(number) => write!(f, "XID {number}"),
            Switch(number) => write!(f, "SXid {number}"),
            kind => {
                let words = WORDS.iter().find(|(one, _)| one == kind);
                f.write_str(words.map_or("error", |(_, words)| words))
            }
        }
    }
}

impl MachineErrorKind {
    fn parse(text: &str) -> Option<MachineErrorKind> {
        let number = |prefix| text.strip_prefix(prefix)?.parse().ok();
        let named = || WORDS.iter().find(|(_, words)| *words == text).map(|(kind, _)| *kind);
        number("XID ").map(Xid).or_else(|| number("SXid ").map(Switch)).or_else(named)
    }
}

/// The device that an error is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorPlace {
    /// A GPU, by NVML's number on its host.
    Gpu(u32),
    /// A device, by its address on the PCI bus, as the kernel writes it.
    Pci(String),
}

/// An error of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    /// Kind of the error.
    pub kind: MachineErrorKind,
    /// The device, if the source names it.
    pub place: Option<ErrorPlace>,
    /// What is known beyond that: the kernel's own line, or the meaning of a number. May be empty.
    pub detail: String,
    /// Whether the kernel's log has it. Otherwise the GPU driver's library reported it.
    pub is_of_kernel: bool,
}

/// How an error is judged on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The machine corrected the error, or noted it for later. Alone it has no consequence.
    Minor,
    /// It may stop or slow down a job.
    Serious,
    /// It ends the work of a job on the device, or a part of the machine is lost.
    Fatal,
}

/// Most characters of the kernel's line that are kept.
const MOST_CHARS: usize = 300;
const KERNEL: &str = " (kernel)";

impl MachineError {
    /// Returns the error with this number that the driver reported of a GPU.
    pub fn xid(number: u32, gpu: u32) -> MachineError {
        let detail = XidClass::of(number).1.to_owned();
        let place = Some(ErrorPlace::Gpu(gpu));
        MachineError { kind: Xid(number), place, detail, is_of_kernel: false }
    }

    /// Returns an error of a GPU's memory that ECC could not correct.
    pub fn uncorrected_ecc(gpu: u32) -> MachineError {
        let place = Some(ErrorPlace::Gpu(gpu));
        MachineError { kind: UncorrectedEcc, place, detail: String::new(), is_of_kernel: false }
    }

    /// Recognises a line of the kernel's log; `None` if it isn't about such an error.
    pub fn of_kernel_line(line: &str) -> Option<MachineError> {
        let (kind, place) = kernel_lines::recognise(line)?;
        let detail = line.chars().filter(|c| !c.is_control()).take(MOST_CHARS).collect();
        Some(MachineError { kind, place, detail, is_of_kernel: true })
    }

    /// Returns the same error without names of programs, disks and hosts.
    pub fn redacted(self) -> MachineError {
        let detail = match (self.is_of_kernel, self.victim()) {
            (false, _) => self.detail,
            (true, Some(pid)) => format!("Killed process {pid}"),
            (true, None) => String::new(),
        };
        MachineError { detail, ..self }
    }

    /// Parses the text of a mark; `None` if another version of tprof wrote a kind that this version
    /// doesn't know.
    pub fn parse(text: &str) -> Option<MachineError> {
        let (head, detail) = text.split_once(": ").unwrap_or((text, ""));
        let (head, is_of_kernel) = match head.strip_suffix(KERNEL) {
            Some(head) => (head, true),
            None => (head, false),
        };
        let (kind, place) = match head.split_once(" on ") {
            None => (head, None),
            Some((kind, place)) => {
                let gpu = place.strip_prefix("GPU ").and_then(|gpu| gpu.parse().ok());
                let pci = || Some(ErrorPlace::Pci(place.strip_prefix("PCI ")?.to_owned()));
                (kind, Some(gpu.map(ErrorPlace::Gpu).or_else(pci)?))
            }
        };
        let kind = MachineErrorKind::parse(kind)?;
        Some(MachineError { kind, place, detail: detail.to_owned(), is_of_kernel })
    }

    /// Returns the pid of the process that an OOM kill ended, as the host's first pid namespace
    /// numbers it.
    pub fn victim(&self) -> Option<u32> {
        let after = self.detail.split("illed process ").nth(1)?;
        let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|_| self.kind == OomKill)
    }

    /// Returns how the error is judged without regard to what followed.
    pub fn weight(&self) -> Weight {
        let is = |words: &str| self.detail.contains(words);
        match self.kind {
            Xid(number) => XidClass::of(number).0.weight(),
            Switch(_) if is("Non-fatal") => Weight::Serious,
            Switch(_) | UncorrectedEcc | LinkDown => Weight::Fatal,
            Hardware if is(" UE ") || is("Uncorrected") => Weight::Fatal,
            Hardware => Weight::Minor,
            Pcie if is("Correct") => Weight::Minor,
            Pcie if is("Fatal") && !is("Non-Fatal") => Weight::Fatal,
            Pcie | OomKill | NetworkDevice | Storage | FileSystem | FileServer | StuckTask
            | Overheated => Weight::Serious,
        }
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match &self.place {
            None => {}
            Some(ErrorPlace::Gpu(gpu)) => write!(f, " on GPU {gpu}")?,
            Some(ErrorPlace::Pci(address)) => write!(f, " on PCI {address}")?,
        }
        if self.is_of_kernel {
            f.write_str(KERNEL)?;
        }
        match self.detail.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_parsed_from_the_text_that_is_stored() {
        let killed = "Memory cgroup out of memory: Killed process 4242 (python3: x) total-vm:1kB";
        let xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.";
        let of_kernel = |line| MachineError::of_kernel_line(line).unwrap();
        let all = [
            MachineError::xid(79, 3),
            MachineError::xid(77_777, 0),
            MachineError::uncorrected_ecc(1),
            of_kernel(killed),
            of_kernel(xid),
            of_kernel(killed).redacted(),
            of_kernel(xid).redacted(),
        ];
        for error in all {
            assert_eq!(MachineError::parse(&error.to_string()).as_ref(), Some(&error));
        }
        assert_eq!(
            MachineError::xid(79, 3).to_string(),
            "XID 79 on GPU 3: the GPU does not respond on the PCIe bus any more"
        );
        assert_eq!(
            of_kernel(killed).redacted().to_string(),
            "OOM kill (kernel): Killed process 4242"
        );
        assert_eq!(of_kernel(killed).victim(), Some(4242));
        for text in ["", "epoch 3", "XID on GPU 1", "XID 99999999999 on GPU 1", "link down on x"] {
            assert_eq!(MachineError::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_corrected_error_weighs_less_than_one_that_loses_a_device() {
        assert_eq!(MachineError::xid(63, 0).weight(), Weight::Minor);
        assert_eq!(MachineError::xid(31, 0).weight(), Weight::Serious);
        for number in [48, 64, 74, 79, 94, 95, 119, 120] {
            assert_eq!(MachineError::xid(number, 0).weight(), Weight::Fatal, "{number}");
        }
        let of = |line| MachineError::of_kernel_line(line).unwrap().weight();
        assert_eq!(
            of("pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0"),
            Weight::Minor
        );
        assert_eq!(of("EDAC MC0: 1 UE memory read error on CPU_SrcID#0"), Weight::Fatal);
        assert_eq!(of("mlx5_core 0000:5e:00.0 ib0: Link down"), Weight::Fatal);
    }
}
