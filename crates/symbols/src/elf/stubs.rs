//! Names the linker's stubs in `.plt` and similar sections. A file calls functions of other files
//! through these stubs.
//!
//! A stub has no symbol. It jumps to the address in a slot, and a relocation names the function for
//! the slot. A stub of the older kind first pushes the number of that relocation.

use super::{EM_X86_64, Elf, Section, u32_at, u64_at};

/// Bytes of a stub. Stubs in `.plt.got` are smaller.
const STUB: u64 = 16;
const SMALL_STUB: u64 = 8;
/// Bytes of a relocation with an addend.
const RELOCATION: u64 = 24;
/// Largest size of a table of relocations that is searched, bytes.
const MAX_RELOCATIONS: u64 = 16 << 20;
/// `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT`: the slot contains a function's address.
const SLOTS: [u32; 2] = [6, 7];

/// Returns the mangled name of the function that the stub at an ELF address calls.
pub(crate) fn called_by_stub(elf: &Elf, pc: u64) -> Option<String> {
    if elf.machine() != EM_X86_64 {
        return None;
    }
    let sections = elf.sections();
    let holds = |section: &&Section| pc.wrapping_sub(section.address) < section.bytes;
    let own = sections.iter().find(|section| section.is_code() && holds(section))?;
    let bytes = match own.name.as_str() {
        ".plt" | ".plt.sec" => STUB,
        ".plt.got" => SMALL_STUB,
        _ => return None,
    };
    let start = own.address + (pc - own.address) / bytes * bytes;
    let code = elf.read(own.offset.checked_add(start - own.address)?, bytes).ok()?;
    let named = |name: &str| sections.iter().find(|section| section.name == name);
    let relocations = |name: &str| {
        let table = named(name).filter(|table| table.bytes <= MAX_RELOCATIONS);
        table.and_then(|table| elf.contents(table, MAX_RELOCATIONS).ok()).unwrap_or_default()
    };
    let symbol = match slot(&code, start) {
        Some(slot) => [".rela.plt", ".rela.dyn"].iter().find_map(|name| {
            let all = relocations(name);
            let entry = all
                .chunks_exact(RELOCATION as usize)
                .find(|entry| u64_at(entry, 0) == slot && SLOTS.contains(&u32_at(entry, 8)))?;
            Some(u32_at(entry, 12))
        })?,
        None => {
            let at = usize::try_from(pushed(&code)?).ok()?.checked_mul(RELOCATION as usize)?;
            let all = relocations(".rela.plt");
            u32_at(all.get(at..at.checked_add(RELOCATION as usize)?)?, 12)
        }
    };
    let symbols = named(".dynsym")?;
    let names = sections.get(symbols.link as usize)?;
    let entry =
        elf.read(symbols.offset.checked_add(u64::from(symbol).checked_mul(24)?)?, 24).ok()?;
    let name = elf.string(names.offset.checked_add(u64::from(u32_at(&entry, 0)))?)?;
    (symbol > 0 && !name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
}

/// Returns the address of the slot from which a stub at `address` reads its target, by `jmp
/// *DISTANCE(%rip)`.
fn slot(code: &[u8], address: u64) -> Option<u64> {
    let at = code.windows(2).position(|word| word == [0xff, 0x25])?;
    let distance = code.get(at + 2..at + 6)?;
    let next = address.checked_add(at as u64 + 6)?;
    Some(next.wrapping_add_signed(i64::from(u32_at(distance, 0) as i32)))
}

/// Returns the number of the relocation that a stub pushes. Such a stub begins with `push`, or with
/// `endbr64` and `push`.
fn pushed(code: &[u8]) -> Option<u32> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let number = code.strip_prefix(&[0x68])?.get(..4)?;
    Some(u32_at(number, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_or_relocation_of_a_stub_is_found_in_its_code() {
        // endbr64; bnd jmp *0x2fbd(%rip); nop
        let with_endbr =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xbd, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(slot(&with_endbr, 0x1050), Some(0x1050 + 11 + 0x2fbd));
        // jmp *-0x10(%rip); push $3; jmp
        let plain = [0xff, 0x25, 0xf0, 0xff, 0xff, 0xff, 0x68, 3, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        assert_eq!(slot(&plain, 0x1030), Some(0x1030 + 6 - 0x10));
        // endbr64; push $3; bnd jmp
        let lazy = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 3, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0, 0x90];
        assert_eq!((slot(&lazy, 0x1030), pushed(&lazy)), (None, Some(3)));
        assert_eq!(pushed(&[0x90; 16]), None);
        assert_eq!(slot(&[0xff, 0x25], 0), None);
    }
}
