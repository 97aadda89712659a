//! The pages over a directory of runs as files, for any web server or none.
//!
//! The same router as for browsers makes the answers. A file of the site contains the document that
//! the server would send, or the reason why it would not. `pages/data.js` reads what `file` writes.
//!
//! - `parts`: the requests of the pages, and the file that answers each;
//! - `file`: writes an answer as a file;
//! - `make`: writes all files, in a directory that appears completely or not at all.

mod file;
mod make;
mod parts;

pub use make::site;
