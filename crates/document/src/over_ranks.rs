//! Makes tables of shares of time over many ranks: mean, lowest and highest share, and the ranks
//! with these extremes.

use crate::{Column, Table, Unit};

/// A share that every rank has.
pub struct RankShare<'a> {
    /// Name of the part.
    pub name: &'static str,
    /// The share of each rank, with the rank's label.
    pub shares: Vec<(f64, &'a str)>,
}

/// A table with one row per part: mean, lowest and highest share.
pub fn over_ranks(key: &'static str, title: &str, parts: &[RankShare<'_>]) -> Table {
    let columns = vec![
        Column::new("part", "part", Unit::Text),
        Column::new("mean_share", "mean", Unit::Share),
        Column::new("lowest_share", "lowest", Unit::Share),
        Column::new("lowest_rank", "of", Unit::Text),
        Column::new("highest_share", "highest", Unit::Share),
        Column::new("highest_rank", "of", Unit::Text),
    ];
    let mut table = Table::new(key, title, columns);
    for part in parts {
        let by_share = |a: &&(f64, &str), b: &&(f64, &str)| a.0.total_cmp(&b.0);
        let (Some(lowest), Some(highest)) =
            (part.shares.iter().min_by(by_share), part.shares.iter().max_by(by_share))
        else {
            continue;
        };
        let mean = part.shares.iter().map(|share| share.0).sum::<f64>() / part.shares.len() as f64;
        table.row(vec![
            part.name.into(),
            mean.into(),
            lowest.0.into(),
            lowest.1.into(),
            highest.0.into(),
            highest.1.into(),
        ]);
    }
    table
}
