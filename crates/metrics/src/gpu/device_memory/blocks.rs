//! Collects the blocks that allocators gave to the program: how long each was held, and the code
//! that it was allocated for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Moment, RankTrace, enclosing, nesting_order};
use tprof_trace::model::{
    Allocator, DeviceAllocation, NameId, ProcessIndex, SpanKind, StackId, ThreadIndex,
};

use super::category::gives_blocks;
use super::pools::{Pool, pool_of};
use super::{frees, resets};
use crate::host::code_line::{CodeLine, CodeLines};

/// The code that a block was allocated for. Each part is `None` if it isn't known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderCode {
    /// The innermost operator.
    pub operator: Option<NameId>,
    /// The innermost module's call.
    pub module: Option<NameId>,
    /// The line of the program's own code. Most stacks of blocks don't have Python's functions. The
    /// others have the same line of Python as all blocks of their operator, module and size that
    /// have such a stack, if these agree.
    pub line: Option<CodeLine>,
}

/// A block of device memory that an allocator gave to the program.
#[derive(Clone, Debug)]
pub struct DeviceBlock {
    /// The allocator, and the device whose memory it gave.
    pub pool: Pool,
    /// The process that holds the block.
    pub process: ProcessIndex,
    /// The thread that allocated the block.
    pub thread: ThreadIndex,
    /// Bytes of the block.
    pub bytes: u64,
    /// Time of the allocation.
    pub taken_ns: u64,
    /// Time of the free; `None` if there was none.
    pub given_ns: Option<u64>,
    /// The code that the block was allocated for.
    pub code: HolderCode,
    stack: StackId,
}

/// Blocks of one pool that the same code allocated.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The operator, module and line that allocated them.
    pub code: HolderCode,
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

impl DeviceBlock {
    /// Whether the block was held at a moment.
    pub fn is_held_at(&self, time_ns: u64) -> bool {
        self.taken_ns <= time_ns && self.given_ns.is_none_or(|given_ns| time_ns < given_ns)
    }
}

/// Returns the blocks of a rank that a framework's allocator or a stream-ordered pool gave out, in
/// order of time.
pub fn blocks(rank: &RankTrace<'_>) -> Vec<DeviceBlock> {
    let placed = frees::place(&rank.allocations);
    let (rows, _) = resets::expand(&placed);
    let mut blocks = of_rows(&rows);
    add_spans(rank, &mut blocks);
    add_lines(rank, &mut blocks);
    blocks
}

fn of_rows(rows: &[DeviceAllocation]) -> Vec<DeviceBlock> {
    let mut live: HashMap<(ProcessIndex, Allocator, u64), usize> = HashMap::new();
    let mut blocks: Vec<DeviceBlock> = Vec::new();
    let is_block = |row: &&DeviceAllocation| gives_blocks(row.allocator) && row.is_placed();
    for row in rows.iter().filter(is_block) {
        let key = (row.process, row.allocator, row.address);
        if row.free {
            if let Some(at) = live.remove(&key) {
                blocks[at].given_ns = Some(row.time_ns);
            }
        } else if row.device.is_some() {
            live.insert(key, blocks.len());
            blocks.push(DeviceBlock {
                pool: pool_of(row),
                process: row.process,
                thread: row.thread,
                bytes: row.bytes.unwrap_or(0),
                taken_ns: row.time_ns,
                given_ns: None,
                code: HolderCode::default(),
                stack: row.stack,
            });
        }
    }
    blocks
}

/// Adds the operator and the module around each allocation.
fn add_spans(rank: &RankTrace<'_>, blocks: &mut [DeviceBlock]) {
    let mut moments: Vec<Moment<usize>> = (blocks.iter().enumerate())
        .map(|(at, block)| Moment { thread: block.thread, time_ns: block.taken_ns, of: at })
        .collect();
    moments.sort_by_key(nesting_order);
    let operators = rank.spans(SpanKind::Operator);
    let modules = rank.module_calls();
    let within = enclosing(operators, &moments).zip(enclosing(&modules, &moments));
    for (moment, (operator, module)) in moments.iter().zip(within) {
        let code = &mut blocks[moment.of].code;
        code.operator = operator.map(|at| operators[at as usize].name);
        code.module = module.map(|at| modules[at as usize].name);
    }
}

/// Adds the line of each allocation.
fn add_lines(rank: &RankTrace<'_>, blocks: &mut [DeviceBlock]) {
    let mut lines = CodeLines::new(rank.file);
    let mut known: FxHashMap<(ProcessIndex, StackId), Option<CodeLine>> = FxHashMap::default();
    // The line of Python for each kind of block; `None` if there are several.
    let mut of_kind: FxHashMap<_, Option<CodeLine>> = FxHashMap::default();
    let kind =
        |block: &DeviceBlock| (block.process, block.code.operator, block.code.module, block.bytes);
    for block in blocks.iter_mut() {
        let key = (block.process, block.stack);
        let line = known.entry(key).or_insert_with(|| lines.of(block.process, block.stack));
        block.code.line.clone_from(line);
        if let Some(line) = line.as_ref().filter(|line| line.is_python()) {
            let one = of_kind.entry(kind(block)).or_insert_with(|| Some(line.clone()));
            if one.as_ref() != Some(line) {
                *one = None;
            }
        }
    }
    let has_python =
        |block: &DeviceBlock| block.code.line.as_ref().is_some_and(CodeLine::is_python);
    for block in blocks.iter_mut().filter(|block| !has_python(block)) {
        if let Some(line) = of_kind.get(&kind(block)).cloned().flatten() {
            block.code.line = Some(line);
        }
    }
}

/// Groups blocks by their code; most bytes first.
pub fn holders<'b>(blocks: impl IntoIterator<Item = &'b DeviceBlock>) -> Vec<Holder> {
    let mut sums: BTreeMap<&HolderCode, (u64, u64)> = BTreeMap::new();
    for block in blocks {
        let sum = sums.entry(&block.code).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(block.bytes));
    }
    let holder = |(code, (blocks, bytes)): (&HolderCode, (u64, u64))| Holder {
        code: code.clone(),
        blocks,
        bytes,
    };
    let mut holders: Vec<Holder> = sums.into_iter().map(holder).collect();
    holders.sort_rows_by_key(|holder| Reverse(holder.bytes));
    holders
}
