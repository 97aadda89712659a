//! Parquet: a directory with one table a directory, for DuckDB, Polars, pandas, Spark.
//!
//! `DIR/kernels/rank=3/rank-3.parquet`, one file a rank; readers that know Hive's convention find
//! the rank by its directory, all others in the column `rank`. With many ranks
//! `DIR/kernels/ranks-0-127.parquet`: opening a file costs an engine more than reading a rank. A table
//! without rows has one file, `none.parquet`, with its columns. `DIR/_tprof.json` describes the dataset.

mod dataset;
mod file;
mod packing;

pub use dataset::export;
