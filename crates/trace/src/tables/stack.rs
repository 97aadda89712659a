//! Encodes the table of stacks.
//!
//! The stacks of a program share most of their outer frames, and have few different frames. So a
//! row stores two things: how many outer frames it shares with the previous row, and its other
//! frames as positions in a list of the block's frames.

use super::{Row, table};
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::Stack;

/// The frames as format 1 stored them: a list for each row. Only old files have this column.
const WHOLE: u16 = 4;
/// The number of outer frames that a row shares with the row before.
const SHARED: u16 = 5;
/// The row's other frames, innermost first, as positions in [`FRAMES`].
const OWN: u16 = 6;
/// All frames that some row doesn't share with the previous row: each once, in ascending order.
const FRAMES: u16 = 7;

impl Row for Stack {
    const TABLE: u16 = table::STACKS;

    fn weight(&self) -> usize {
        1 + self.frames.len()
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.time(2, rows, |r| r.stack.into());
        block.uint(3, rows, |r| r.end.into());
        let mut before: &[u64] = &[];
        let mut split: Vec<(u64, Vec<u64>)> = Vec::with_capacity(rows.len());
        for row in rows {
            let shared = common_end(before, &row.frames);
            split.push((shared as u64, row.frames[..row.frames.len() - shared].to_vec()));
            before = &row.frames;
        }
        let mut frames: Vec<u64> = split.iter().flat_map(|(_, own)| own.iter().copied()).collect();
        frames.sort_unstable();
        frames.dedup();
        for frame in split.iter_mut().flat_map(|(_, own)| own) {
            *frame = frames.partition_point(|known| known < frame) as u64;
        }
        block.uint(SHARED, &split, |(shared, _)| *shared);
        block.list(OWN, &split, |(_, own)| own);
        match frames.split_first() {
            None => block.integers::<u64>(FRAMES, &[]),
            Some((first, _)) => {
                let steps: Vec<u64> = frames.windows(2).map(|pair| pair[1] - pair[0]).collect();
                block.differences(FRAMES, *first, &steps, false);
            }
        }
        block.raw_len += 8 * split.iter().map(|(shared, _)| *shared as usize).sum::<usize>();
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, stack, end) = (columns.narrow(1)?, columns.uint(2)?, columns.uint(3)?);
        let frames = match columns.has(WHOLE) {
            true => columns.list(WHOLE)?,
            false => joined(columns)?,
        };
        Ok(frames
            .into_iter()
            .enumerate()
            .map(|(i, frames)| Stack {
                process: process[i],
                stack: stack[i] as u32,
                end: end[i] as u8,
                frames,
            })
            .collect())
    }
}

/// Returns the length of the longest common suffix of two lists.
fn common_end(a: &[u64], b: &[u64]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Restores the frames of every row.
fn joined(columns: &mut Columns<'_>) -> Result<Vec<Vec<u64>>, Damage> {
    let shared = columns.uint(SHARED)?;
    let own = columns.list(OWN)?;
    let mut known = Vec::new();
    columns.integers_into(FRAMES, &mut known)?;
    let mut all: Vec<Vec<u64>> = Vec::with_capacity(own.len());
    for (places, shared) in own.into_iter().zip(shared) {
        let before = all.last().map_or(&[][..], |frames| frames);
        let from = usize::try_from(shared).ok().and_then(|shared| before.len().checked_sub(shared));
        let outer = from.and_then(|from| before.get(from..));
        let outer = outer.ok_or_else(|| Damage::new("a stack shares frames that are not there"))?;
        // The size in the block's header includes the shared frames, which no column contains.
        columns.fill(8 * outer.len())?;
        let mut frames = Vec::with_capacity(places.len() + outer.len());
        for place in places {
            let frame = usize::try_from(place).ok().and_then(|place| known.get(place));
            frames.push(*frame.ok_or_else(|| Damage::new("a stack has an unknown frame"))?);
        }
        frames.extend_from_slice(outer);
        all.push(frames);
    }
    Ok(all)
}
