//! All tests of this folder are one program: each program costs a link, and cargo runs one after another.

mod common;
mod compile_log;
mod damage;
mod golden;
mod kept;
mod large_tables;
mod round_trip;
mod run_dir;
mod tail;
