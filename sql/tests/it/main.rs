//! Runs `tprof-sql` as its users do, over runs written by tprof.

#[path = "../../../tests/src/many_ranks.rs"]
mod many_ranks;
#[path = "../../../tests/src/synthetic.rs"]
mod synthetic;
#[path = "../../../tests/src/view_pairs.rs"]
mod view_pairs;

mod archive;
mod damage;
mod errors;
mod functions;
mod limits;
mod output;
mod packages;
mod prompt;
mod queries;
mod refused;
mod remote;
mod runs;
mod serve;
mod served;
mod servers;
mod stores;
mod views;
