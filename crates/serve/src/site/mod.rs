//! Writes the pages over a directory of runs as files, which any web server can serve and a browser
//! can also open directly.
//!
//! The server's own router makes the answers. A file of the site contains the document or the error
//! that the server would send. `pages/data.js` reads what `file` writes.
//!
//! - `parts`: the requests of the pages, and the file that answers each;
//! - `file`: writes an answer as a file;
//! - `make`: writes all files, in a directory that appears completely or not at all.

mod file;
mod make;
mod parts;

pub use make::site;
