//! Defines the numbers by which rows refer to names, processes, threads and stacks of the same
//! file.

/// An interned string of one file; 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A process image of one file, numbered from 0 in order of appearance.
pub type ProcessIndex = u32;
/// A thread of one file, numbered from 0 in order of appearance over all processes.
pub type ThreadIndex = u32;
/// A stack of one process; 0 means that no stack was recorded.
pub type StackId = u32;
