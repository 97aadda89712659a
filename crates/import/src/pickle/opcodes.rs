//! Defines the opcodes of pickles, with the names that Python's `pickletools` uses.

pub(super) const MARK: u8 = b'(';
pub(super) const STOP: u8 = b'.';
pub(super) const NONE: u8 = b'N';
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const BININT2: u8 = b'M';
pub(super) const BINFLOAT: u8 = b'G';
pub(super) const BINUNICODE: u8 = b'X';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const LIST: u8 = b'l';
pub(super) const APPEND: u8 = b'a';
pub(super) const APPENDS: u8 = b'e';
pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const TUPLE: u8 = b't';
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const DICT: u8 = b'd';
pub(super) const SETITEM: u8 = b's';
pub(super) const SETITEMS: u8 = b'u';
pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const PROTO: u8 = 0x80;
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const LONG1: u8 = 0x8a;
pub(super) const LONG4: u8 = 0x8b;
pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
pub(super) const BINUNICODE8: u8 = 0x8d;
pub(super) const MEMOIZE: u8 = 0x94;
pub(super) const FRAME: u8 = 0x95;

/// Returns the name of a refused opcode, and whether it makes Python import or call something.
/// Returns `None` if no protocol defines the opcode.
pub(super) fn refused(opcode: u8) -> Option<(&'static str, bool)> {
    Some(match opcode {
        b'c' => ("GLOBAL", true),
        0x93 => ("STACK_GLOBAL", true),
        b'R' => ("REDUCE", true),
        b'b' => ("BUILD", true),
        b'i' => ("INST", true),
        b'o' => ("OBJ", true),
        0x81 => ("NEWOBJ", true),
        0x92 => ("NEWOBJ_EX", true),
        0x82 => ("EXT1", true),
        0x83 => ("EXT2", true),
        0x84 => ("EXT4", true),
        b'P' => ("PERSID", true),
        b'Q' => ("BINPERSID", true),
        0x97 => ("NEXT_BUFFER", false),
        0x98 => ("READONLY_BUFFER", false),
        0x96 => ("BYTEARRAY8", false),
        0x8e => ("BINBYTES8", false),
        0x8f => ("EMPTY_SET", false),
        0x90 => ("ADDITEMS", false),
        0x91 => ("FROZENSET", false),
        b'B' => ("BINBYTES", false),
        b'C' => ("SHORT_BINBYTES", false),
        b'T' => ("BINSTRING", false),
        b'U' => ("SHORT_BINSTRING", false),
        b'S' => ("STRING", false),
        b'V' => ("UNICODE", false),
        b'I' => ("INT", false),
        b'L' => ("LONG", false),
        b'F' => ("FLOAT", false),
        b'0' => ("POP", false),
        b'1' => ("POP_MARK", false),
        b'2' => ("DUP", false),
        b'g' => ("GET", false),
        b'p' => ("PUT", false),
        _ => return None,
    })
}
