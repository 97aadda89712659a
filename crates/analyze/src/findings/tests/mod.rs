//! Each rule on a trace whose answer is computed by hand, and on one just below
//! its trigger.

mod beginning;
mod communication;
mod compiled;
mod copies;
mod device;
mod driving;
mod gil;
mod growth;
mod host;
mod idle;
mod job;
mod kernels;
mod limits;
mod memory;
mod properties;
mod report;
mod scope;
mod sizes;
mod stated;
mod workers;
