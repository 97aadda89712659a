//! The meaning of the errors of GPUs that NVIDIA's driver numbers (XIDs), in a few words each. NVIDIA
//! documents them in its catalogue of XID errors.

use super::Weight;

/// What an XID is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidClass {
    /// The program's own work failed. The machine may be healthy.
    Program,
    /// The device noted a fault and went on.
    Noted,
    /// The device, its memory or a link of it failed.
    Device,
    /// The number isn't in the table.
    Unknown,
}

const KNOWN: [(u32, XidClass, &str); 24] = {
    use XidClass::*;
    [
        (8, Program, "the GPU stopped processing a program's work"),
        (13, Program, "a kernel caused an exception"),
        (31, Program, "work on the GPU accessed memory that is not mapped"),
        (32, Program, "the GPU was given invalid commands"),
        (43, Program, "the GPU stopped processing a program's work"),
        (45, Program, "a program's work on the GPU was removed"),
        (48, Device, "the GPU's memory had an error that ECC could not correct"),
        (61, Device, "a controller inside the GPU stopped"),
        (62, Device, "a controller inside the GPU halted"),
        (63, Noted, "a faulty row or page of the GPU's memory was recorded for replacement"),
        (64, Device, "a faulty row or page of the GPU's memory could not be recorded"),
        (68, Program, "the video processor caused an exception"),
        (69, Program, "the GPU rejected a command of a program"),
        (74, Device, "a link of NVLink failed"),
        (79, Device, "the GPU does not respond on the PCIe bus any more"),
        (92, Noted, "many errors of the GPU's memory had to be corrected"),
        (94, Device, "an uncorrected memory error was contained to one program"),
        (95, Device, "an uncorrected memory error was not contained"),
        (109, Program, "switching between programs on the GPU took too long"),
        (119, Device, "the GPU's system processor (GSP) does not answer"),
        (120, Device, "the GPU's system processor (GSP) failed"),
        (121, Noted, "a link between the GPU and its host processor had corrected errors"),
        (140, Device, "the GPU's memory had an error that ECC could not recover"),
        (143, Device, "the GPU did not initialize"),
    ]
};

impl XidClass {
    /// Returns the class of an XID, and its meaning in words; empty if it is unknown.
    pub fn of(number: u32) -> (XidClass, &'static str) {
        let known = KNOWN.iter().find(|(one, ..)| *one == number);
        known.map_or((XidClass::Unknown, ""), |(_, class, words)| (*class, *words))
    }

    pub(super) fn weight(self) -> Weight {
        match self {
            XidClass::Noted => Weight::Minor,
            XidClass::Program | XidClass::Unknown => Weight::Serious,
            XidClass::Device => Weight::Fatal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_listed_once_and_in_order() {
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(XidClass::of(79).0, XidClass::Device);
        assert_eq!(XidClass::of(1_000), (XidClass::Unknown, ""));
    }
}
