//! Parses and prints sets of numbers as people write them: `3`, `0,2`, `4-9`.

use std::str::FromStr;

/// A set of numbers, as inclusive ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    ranges: Vec<(u64, u64)>,
    text: String,
}

impl Numbers {
    /// Returns the ranges of the set, both ends included.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Whether a number is in the set.
    pub fn holds(&self, number: u64) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&number))
    }

    /// Returns the smallest number of the set, for messages.
    pub fn first(&self) -> u64 {
        self.ranges.iter().map(|(from, _)| *from).min().unwrap_or(0)
    }

    /// Returns the numbers of the set that `available` lacks. Of a range, only the ends are
    /// checked.
    pub fn missing(&self, available: &[u64]) -> Vec<u64> {
        let ends = self.ranges.iter().flat_map(|(from, to)| [*from, *to]);
        let mut missing: Vec<u64> = ends.filter(|number| !available.contains(number)).collect();
        missing.dedup();
        missing
    }
}

impl From<u32> for Numbers {
    fn from(number: u32) -> Numbers {
        Numbers { ranges: vec![(number.into(), number.into())], text: number.to_string() }
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        let number = |text: &str| {
            let text = text.trim();
            text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"))
        };
        let range = |part: &str| match part.split_once("..").or_else(|| part.split_once('-')) {
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to.trim_start_matches('='))?);
                if from > to { Err(format!("{from} comes after {to}")) } else { Ok((from, to)) }
            }
            None => number(part).map(|number| (number, number)),
        };
        let ranges = text.split(',').map(range).collect::<Result<_, _>>()?;
        Ok(Numbers { ranges, text: text.trim().to_owned() })
    }
}

impl std::fmt::Display for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_parsed() {
        let set: Numbers = "1, 4-6,9..10".parse().unwrap();
        let in_set: Vec<u64> = (0..12).filter(|n| set.holds(*n)).collect();
        assert_eq!(in_set, [1, 4, 5, 6, 9, 10]);
        assert_eq!(set.missing(&[1, 4, 6, 10]), [9]);
        for bad in ["", "x", "3-", "5-4", "1,,2", "-1"] {
            assert!(bad.parse::<Numbers>().is_err(), "{bad}");
        }
    }
}
