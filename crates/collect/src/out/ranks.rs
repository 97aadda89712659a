//! Which rank a process belongs to, and which file holds it.

use tprof_wire::env::RANK_VARIABLES;

/// What an environment has about ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankEnvironment {
    /// The rank that it names.
    pub rank: Option<u32>,
    /// It carries LOCAL_RANK: a worker of torchrun; its launcher does not.
    pub local: bool,
}

/// Reads the NUL-separated environment of a process.
pub fn read(environ: &[u8]) -> RankEnvironment {
    let value = |name: &str| {
        environ.split(|b| *b == 0).find_map(|entry| {
            let rest = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(rest).ok()
        })
    };
    let number = |name: &str| value(name).and_then(|v| v.trim().parse::<u32>().ok());
    let rank = RANK_VARIABLES.iter().find_map(|name| match *name {
        "RANK" => value("WORLD_SIZE").and_then(|_| number("RANK")),
        name => number(name),
    });
    RankEnvironment { rank, local: value("LOCAL_RANK").is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> RankEnvironment {
        read(text.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn variables_are_trusted_in_order() {
        assert_eq!(of("PATH=/bin").rank, None);
        assert_eq!(of("RANK=3").rank, None, "RANK alone may mean anything");
        assert_eq!(of("RANK=3 WORLD_SIZE=8 SLURM_PROCID=0").rank, Some(3));
        assert_eq!(of("SLURM_PROCID=5 PMI_RANK=4").rank, Some(4));
        assert_eq!(of("OMPI_COMM_WORLD_RANK=1 PMIX_RANK=9").rank, Some(1));
        assert_eq!(of("RANK=x WORLD_SIZE=8 PMI_RANK=2").rank, Some(2));
        assert!(of("LOCAL_RANK=0 RANK=0 WORLD_SIZE=2").local);
    }
}
