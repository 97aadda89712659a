//! Sets linker options.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // With this option, the tables of hooks contain this library's own functions, whatever else is
    // preloaded, and the loader need not look up their 233 symbols in each process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
