//! Tests each rule on a trace whose result was computed by hand, and on a trace just below the
//! rule's trigger.

mod beginning;
mod blocks;
mod communication;
mod compiled;
mod copies;
mod device;
mod driving;
mod files;
mod gil;
mod growth;
mod hang;
mod host;
mod idle;
mod job;
mod kernels;
mod limits;
mod machine;
mod memory;
mod properties;
mod report;
mod scope;
mod sizes;
mod slow_step;
mod stated;
mod workers;
