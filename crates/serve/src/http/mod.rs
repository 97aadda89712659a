//! Accepts connections and decides which requests are allowed, by token and headers.

mod guard;
mod json_errors;
mod listen;
mod tls;
mod token;

pub use guard::{Guard, body, check};
#[cfg(feature = "fuzzing")]
pub use listen::answer;
pub use listen::{Listen, listen};
pub use tls::acceptor;
pub use token::Token;
