//! The pages over a directory of runs as files, for any web server or none.
//!
//! The router that answers browsers answers here: a file of the site has the document that the
//! server gives out, or why it gives out none. `pages/data.js` reads what `file` writes.
//!
//! - `parts`: what the pages ask for, and where each is;
//! - `file`: an answer as a file;
//! - `make`: all of them, in a directory that appears whole or not at all.

mod file;
mod make;
mod parts;

pub use make::site;
