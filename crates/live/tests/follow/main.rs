//! Tests a follower on a growing run: steps, stalls, ends, and files that are renamed or replaced.

mod figures;
mod files;
mod hostile;
mod run;
mod steps;
