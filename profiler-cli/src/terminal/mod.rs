//! Text for people: pages, errors, colours and quoting.

pub mod columns;
pub mod commands;
pub mod distinct;
pub mod errors;
mod markdown;
pub mod page;
pub mod paint;
pub mod progress;
pub mod quote;
