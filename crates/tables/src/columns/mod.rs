//! Defines the columns of each table of a rank.

pub(crate) mod device;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod host_times;
pub(crate) mod small;
