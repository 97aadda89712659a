//! Reads the part that the descriptions of several functions share: a CIE.

use crate::input::Input;
use crate::state::CfaState;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: an address has 32 bits and is relative to its own place.
const RELATIVE: u8 = 0x1b;
/// Maximum length in bytes of an entry that is run. A long entry would be costly, since every
/// description runs its shared entry first. Real entries have some thirty bytes.
const MAX_BYTES: usize = 1024;

/// A shared entry, to which descriptions of functions refer.
#[derive(Clone, Copy, Debug)]
pub struct SharedEntry {
    pub(crate) code_align: u64,
    pub(crate) data_align: i64,
    pub(crate) initial: CfaState,
}

impl SharedEntry {
    /// Reads an entry, whose first bytes are its length. Returns `None` for signal trampolines, and
    /// if addresses do not have the form that compilers write.
    pub fn read(bytes: &[u8]) -> Option<SharedEntry> {
        let mut input = Input::new(bytes);
        let length = input.u32()?;
        let is_whole = usize::try_from(length).ok()?.checked_add(4)? == bytes.len();
        if !is_whole || bytes.len() > MAX_BYTES || input.u32()? != 0 {
            return None;
        }
        let version = input.u8()?;
        let rest = bytes.get(9..)?;
        let name = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
        input.slice(name.len() as u64 + 1)?;
        let code_align = input.uleb()?;
        let data_align = input.sleb()?;
        // The number of the register that contains the return address, which is not needed.
        match version {
            1 => u64::from(input.u8()?),
            3 => input.uleb()?,
            _ => return None,
        };
        let (b'z', augmentations) = name.split_first()? else { return None };
        let length = input.uleb()?;
        if encoding(augmentations, input.slice(length)?)? != RELATIVE {
            return None;
        }
        let mut initial = CfaState::BEFORE;
        while let Some(op) = input.u8() {
            initial.step(op, &mut input, data_align)?;
        }
        Some(SharedEntry { code_align, data_align, initial })
    }
}

/// Returns the encoding of functions' addresses. `letters` are the letters of an entry's
/// augmentation, and `data` is their data.
fn encoding(letters: &[u8], data: &[u8]) -> Option<u8> {
    let mut data = Input::new(data);
    let mut found = None;
    for letter in letters {
        match letter {
            b'R' => found = Some(data.u8()?),
            // The encoding of the pointer to a function's language-specific data.
            b'L' => drop(data.u8()?),
            // The personality function of the language.
            b'P' => {
                let bytes = match data.u8()? {
                    // This encoding pads the pointer to a multiple of its size.
                    0x50 => return None,
                    encoding => match encoding & 0x0f {
                        0x00 | 0x04 | 0x0c => 8,
                        0x02 | 0x0a => 2,
                        0x03 | 0x0b => 4,
                        _ => return None,
                    },
                };
                data.slice(bytes)?;
            }
            _ => return None,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::unwind::{Row, RowKind};

    /// An entry that GCC writes for C++ functions with destructors.
    const WITH_PERSONALITY: [u8; 32] = [
        28, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'P', b'L', b'R', 0, 1, 0x78, 16, 7, 0x9b, 1, 2, 3, 4,
        0x1b, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];

    #[test]
    fn functions_begin_with_the_return_address_on_top_of_the_stack() {
        let entry = SharedEntry::read(&WITH_PERSONALITY).unwrap();
        assert_eq!((entry.code_align, entry.data_align), (1, -8));
        assert_eq!(Some(entry.initial.row()), Row::new(RowKind::Sp, 8, None));
    }

    #[test]
    fn forms_that_compilers_do_not_write_are_refused() {
        // Each pair changes one part: the length, the mark of a CIE, the version, a letter, the
        // encoding, an instruction.
        for (at, value) in [(0, 27), (4, 1), (8, 2), (11, b'S'), (24, 0x0b), (25, 0x0a)] {
            let mut entry = WITH_PERSONALITY;
            entry[at] = value;
            assert!(SharedEntry::read(&entry).is_none(), "byte {at}");
        }
        for len in 0..WITH_PERSONALITY.len() {
            assert!(SharedEntry::read(&WITH_PERSONALITY[..len]).is_none(), "cut to {len}");
        }
    }
}
