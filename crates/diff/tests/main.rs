//! All tests of this folder are one program: each program costs a link, and cargo runs one after another.

mod damage;
mod diff;
