//! Splits the environment of a process into variables. About twenty of them are looked up while the
//! process waits for its answer, so the environment is split only once.

/// The variables of an environment.
pub struct Variables<'e> {
    all: Vec<(&'e [u8], &'e [u8])>,
}

impl<'e> Variables<'e> {
    /// Splits an environment whose entries are separated by NUL.
    pub fn of(environ: &'e [u8]) -> Variables<'e> {
        let taken_apart = |entry: &'e [u8]| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            Some((&entry[..at], &entry[at + 1..]))
        };
        Variables { all: environ.split(|byte| *byte == 0).filter_map(taken_apart).collect() }
    }

    /// Returns all values of a variable. An environment may contain it more than once.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'e [u8]> {
        let is_it = move |(other, _): &&(&[u8], &[u8])| *other == name.as_bytes();
        self.all.iter().filter(is_it).map(|(_, value)| *value)
    }

    /// Returns the first value of a variable.
    pub fn value(&self, name: &str) -> Option<&'e [u8]> {
        self.values(name).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_only_by_its_whole_name() {
        let variables = Variables::of(b"A=1\0AB=2\0A=\0none\0=x\0C=a=b\0");
        assert_eq!(variables.values("A").collect::<Vec<_>>(), [b"1".as_slice(), b""]);
        assert_eq!(variables.value("AB"), Some(b"2".as_slice()));
        assert_eq!(variables.value("C"), Some(b"a=b".as_slice()));
        assert_eq!((variables.value("none"), variables.value("B")), (None, None));
    }
}
