//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The tables of hooks hold this library's own, whatever else is preloaded, and the loader searches
    // none of their 233 symbols in each process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
