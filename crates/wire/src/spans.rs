//! Spans that a program names itself by the table `tprof_abi`: their records.

/// Which span a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Of a push or pop how many spans lie around it on its thread; else the span's number in its
    /// process.
    pub number: u64,
}

impl Place {
    /// As a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.number, 0]
    }

    /// From a payload.
    pub fn unpack(words: &[u64]) -> Option<Place> {
        words.first().map(|number| Place { number: *number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_round_trip() {
        let place = Place { number: u64::MAX };
        assert_eq!(Place::unpack(&place.pack()), Some(place));
        assert_eq!(Place::unpack(&[]), None);
    }
}
