//! Entry points for the fuzz targets in `fuzz/`, which read the bytes of peers that may write
//! anything.
//!
//! What they call is private, and stays so: these functions exist only with the feature `fuzzing`,
//! which nothing but the fuzz targets turns on. It is a feature and not `cfg(fuzzing)`, because
//! compiler flags would compile every dependency once more just to check the targets.

mod ring;

pub use crate::cpu::{RecordsRead, read_records};
pub use ring::{RingsRead, read_rings};
