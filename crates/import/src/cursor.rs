//! Scans JSON in a slice: finds where strings and values end, without decoding them.
//!
//! Every function begins at a position and returns the position where it stopped. If the slice ends
//! first, it returns [`Stop::End`]. The caller then fetches more text and calls the function again.

/// Why a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The slice ended first.
    End,
    /// JSON does not allow the byte at this position.
    Bad(usize),
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Returns a word with the high bit set in each byte of `word` that equals `byte`. Bits above the
/// first match may be wrong, so only the lowest set bit may be used.
#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * byte as u64);
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGHS
}

/// Returns the position of the first byte from `at` that is not white space.
#[inline(always)]
pub(crate) fn space(bytes: &[u8], mut at: usize) -> Result<usize, Stop> {
    loop {
        match bytes.get(at) {
            Some(b' ' | b'\n' | b'\r' | b'\t') => at += 1,
            Some(_) => return Ok(at),
            None => return Err(Stop::End),
        }
    }
}

/// Returns the position of the quote that ends a string whose content begins at `at`.
#[inline(always)]
pub(crate) fn string(bytes: &[u8], mut at: usize) -> Result<usize, Stop> {
    while let Some(chunk) = bytes.get(at..at + 8) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        let word = u64::from_le_bytes(eight);
        let found = equal(word, b'"') | equal(word, b'\\');
        if found == 0 {
            at += 8;
            continue;
        }
        at += found.trailing_zeros() as usize / 8;
        if bytes[at] == b'"' {
            return Ok(at);
        }
        at += 2;
    }
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err(Stop::End),
        }
    }
}

/// Returns the position after the value that begins at `at`. The content of the value is not
/// checked.
#[inline(always)]
pub(crate) fn value(bytes: &[u8], at: usize) -> Result<usize, Stop> {
    match bytes.get(at) {
        Some(b'"') => Ok(string(bytes, at + 1)? + 1),
        Some(b'{' | b'[') => container(bytes, at),
        Some(b',' | b':' | b']' | b'}') => Err(Stop::Bad(at)),
        Some(_) => scalar(bytes, at),
        None => Err(Stop::End),
    }
}

#[inline(always)]
fn scalar(bytes: &[u8], mut at: usize) -> Result<usize, Stop> {
    loop {
        match bytes.get(at) {
            Some(b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t') => return Ok(at),
            Some(b'"' | b'{' | b'[' | b':') => return Err(Stop::Bad(at)),
            Some(_) => at += 1,
            None => return Err(Stop::End),
        }
    }
}

fn container(bytes: &[u8], mut at: usize) -> Result<usize, Stop> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at) {
            Some(b'"') => at = string(bytes, at + 1)?,
            Some(b'{' | b'[') => depth += 1,
            Some(b'}' | b']') => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            Some(_) => (),
            None => return Err(Stop::End),
        }
        at += 1;
    }
}

/// Expects a byte after white space, and returns the position after it.
#[inline(always)]
pub(crate) fn expect(bytes: &[u8], at: usize, byte: u8) -> Result<usize, Stop> {
    let at = space(bytes, at)?;
    if bytes[at] == byte { Ok(at + 1) } else { Err(Stop::Bad(at)) }
}

/// Scans what follows a member or an element. Returns whether another one follows, and the position
/// after the comma or the closing bracket.
#[inline(always)]
pub(crate) fn next(bytes: &[u8], at: usize, close: u8) -> Result<(bool, usize), Stop> {
    let at = space(bytes, at)?;
    match bytes[at] {
        b',' => Ok((true, at + 1)),
        byte if byte == close => Ok((false, at + 1)),
        _ => Err(Stop::Bad(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_the_first_quote_that_is_not_escaped() {
        for pad in 0..20 {
            let text = format!("{}\\\"x\\\\\" rest", "a".repeat(pad));
            assert_eq!(string(text.as_bytes(), 0), Ok(pad + 5), "{text}");
            assert_eq!(string(&text.as_bytes()[..pad + 5], 0), Err(Stop::End));
        }
    }

    #[test]
    fn values_end_where_their_brackets_close() {
        let end = |text: &str| value(text.as_bytes(), 0);
        assert_eq!(end(r#"{"a":["}",{}]},1"#), Ok(14));
        assert_eq!(end("12.5e3,"), Ok(6));
        assert_eq!(end("NaN}"), Ok(3));
        assert_eq!(end("12"), Err(Stop::End));
        assert_eq!(end("]"), Err(Stop::Bad(0)));
        assert_eq!(end("1\"a\""), Err(Stop::Bad(1)));
        assert_eq!(end(&("[".repeat(1 << 20) + &"]".repeat(1 << 20))), Ok(2 << 20));
    }
}
