//! Parses decimal numbers exactly. A double would be too coarse for today's time in nanoseconds.

/// Largest number of digits of a mantissa.
const MAX_DIGITS: usize = 36;

/// Returns a decimal number times 10^`shift`, rounded to the nearest integer; `None` if it is not a
/// number or does not fit.
pub(crate) fn scaled(text: &[u8], shift: i32) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let value = match short(digits, shift) {
        Some(value) => value,
        None => i64::try_from(long(digits, shift)?).ok()?,
    };
    Some(if negative { -value } else { value })
}

/// Converts microseconds to nanoseconds.
#[inline]
pub(crate) fn nanoseconds(text: &[u8]) -> Option<i64> {
    scaled(unquoted(text), 3)
}

/// Handles the usual case: at most 18 digits in all, no exponent, no digit beyond `shift`.
#[inline(always)]
fn short(digits: &[u8], shift: i32) -> Option<i64> {
    let mut value = 0_i64;
    let mut missing = shift;
    let mut point = false;
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                value = value * 10 + i64::from(byte - b'0');
                missing -= i32::from(point);
            }
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    if missing < 0 || digits[digits.len() - 1] == b'.' || digits[0] == b'.' {
        return None;
    }
    value.checked_mul(TENS[missing as usize])
}

const TENS: [i64; 4] = [1, 10, 100, 1000];

fn long(digits: &[u8], shift: i32) -> Option<i128> {
    let exponent_at = digits.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match exponent_at {
        Some(at) => (&digits[..at], std::str::from_utf8(&digits[at + 1..]).ok()?.parse().ok()?),
        None => (digits, 0_i32),
    };
    let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    let all = || whole.iter().chain(fraction);
    if whole.is_empty() || !all().all(u8::is_ascii_digit) || mantissa.ends_with(b".") {
        return None;
    }
    let zeros = all().take_while(|byte| **byte == b'0').count();
    let significant = whole.len() + fraction.len() - zeros;
    let kept = significant.min(MAX_DIGITS);
    let value = all().skip(zeros).take(kept).fold(0_i128, |v, b| v * 10 + i128::from(b - b'0'));
    let dropped = i32::try_from(significant - kept).ok()?;
    let power = shift
        .checked_add(exponent)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?
        .checked_add(dropped)?;
    match power {
        _ if value == 0 => Some(0),
        0.. => 10_i128.checked_pow(power as u32).and_then(|scale| value.checked_mul(scale)),
        _ => Some(match 10_i128.checked_pow(power.unsigned_abs()) {
            Some(scale) => (value + scale / 2) / scale,
            None => 0,
        }),
    }
}

/// Returns the text between the quotes if the text is quoted, because some writers quote numbers.
#[inline(always)]
pub(crate) fn unquoted(text: &[u8]) -> &[u8] {
    match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => text,
    }
}

/// Parses a whole number; `None` if it is anything else or does not fit.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// Parses a whole number without a sign. The number may be larger than [`integer`] accepts.
#[inline]
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    match integer(text) {
        Some(value) => u64::try_from(value).ok(),
        None => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Parses any number as a double.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Whether the text is a number in JSON's grammar.
pub(crate) fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || whole > 1 && rest[0] == b'0' {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', exponent @ ..] => exponent,
            _ => exponent,
        };
        let count = digits(exponent);
        if count == 0 {
            return false;
        }
        rest = &exponent[count..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        let ns = |text: &str| nanoseconds(text.as_bytes());
        assert_eq!(ns("1694128201426602"), Some(1_694_128_201_426_602_000));
        assert_eq!(ns("4203669603069.091"), Some(4_203_669_603_069_091));
        assert_eq!(ns("9007199254740993.001"), Some(9_007_199_254_740_993_001));
        assert_eq!(ns("48.0"), Some(48_000));
        assert_eq!(ns("-1.5"), Some(-1_500));
        assert_eq!(ns("1.0005"), Some(1_001));
        assert_eq!(ns("1.69e15"), Some(1_690_000_000_000_000_000));
        assert_eq!(ns("\"12.5\""), Some(12_500));
        assert_eq!(ns("0e999999999"), Some(0));
        assert_eq!(ns("1e-999999999"), Some(0));
        for bad in ["", "-", ".", "1.", ".5", "NaN", "Infinity", "1e400", "1e99999999999", "1.2.3"]
        {
            assert_eq!(ns(bad), None, "{bad}");
        }
        assert_eq!(ns("9999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn all_notations_of_a_number_have_the_same_value(value in 0_i64..i64::MAX / 1000, zeros in 0_usize..8) {
            let micros = format!("{}.{:03}{}", value / 1000, value % 1000, "0".repeat(zeros));
            prop_assert_eq!(nanoseconds(micros.as_bytes()), Some(value));
            let nanos = format!("{value}e-3");
            prop_assert_eq!(nanoseconds(nanos.as_bytes()), Some(value));
            prop_assert_eq!(integer(value.to_string().as_bytes()), Some(value));
            prop_assert_eq!(integer((-value).to_string().as_bytes()), Some(-value));
        }

        #[test]
        fn only_json_numbers_are_numbers(text in "[-+0-9.eE]{0,12}") {
            let json: Result<serde_json::Value, _> = serde_json::from_str(&text);
            let finite = json.is_ok() || float(text.as_bytes()).is_none() && is_number(text.as_bytes());
            prop_assert_eq!(is_number(text.as_bytes()), finite);
        }
    }
}
