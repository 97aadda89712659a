//! Sets options of the linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // With this option, the tables of hooks always contain this library's own functions, even if
    // other libraries are preloaded. It also saves the loader the lookup of their 233 symbols in
    // each process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
