//! The tables.
