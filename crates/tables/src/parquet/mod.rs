//! Parquet, for DuckDB, Polars, pandas and Spark: a directory with one subdirectory for each table.
//!
//! `DIR/kernels/rank=3/rank-3.parquet` is the file of one rank. Readers that know Hive's convention
//! find the rank in the directory's name, all others in the column `rank`. If there are many ranks,
//! several share a file, such as `DIR/kernels/ranks-0-127.parquet`, because an engine spends more
//! time on opening a file than on reading a rank. A table without rows has one file,
//! `none.parquet`, with its columns. `DIR/_tprof.json` describes the dataset.

mod dataset;
mod file;
mod packing;

pub use dataset::export;
