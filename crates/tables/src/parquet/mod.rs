//! Exports Parquet for DuckDB, Polars, pandas and Spark: a directory with one subdirectory for each
//! table.
//!
//! `DIR/kernels/rank=3/rank-3.parquet` is the file of one rank. Readers that know Hive's convention
//! take the rank from the directory's name. All others find it in the column `rank`. If there are
//! many ranks, several share a file, such as `DIR/kernels/ranks-0-127.parquet`, because engines
//! need more time for opening a file than for reading a rank. A table without rows has one file,
//! `none.parquet`, which contains the columns. `DIR/_tprof.json` describes the dataset.

mod dataset;
mod file;
mod packing;

pub use dataset::export;
