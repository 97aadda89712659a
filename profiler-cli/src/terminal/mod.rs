//! Text for people: pages, errors, colours and quoting.

pub mod commands;
pub mod distinct;
mod markdown;
pub mod page;
pub mod progress;
pub mod quote;
pub mod table;
mod wrap;
