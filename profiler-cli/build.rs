//! Builds the injected libraries, and places them where `src/launch/libraries.rs` includes them.
//!
//! Each library is a separate workspace and is always built in release mode: the profile, flags and
//! features of this build must not affect code that runs inside other people's processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// For each library, the folder of its workspace and the name of its file.
const LIBRARIES: [(&str, &str); 2] =
    [("preload-shim", "libtprof_preload.so"), ("cupti-agent", "libtprof_cupti.so")];

/// Names and prefixes of variables that cargo sets for the outer build. They would change the inner
/// builds, so they are removed.
const OUTER: [&str; 16] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
    "RUSTFLAGS",
    "RUSTC",
    "RUSTDOC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "TARGET",
    "HOST",
    "PROFILE",
    "OPT_LEVEL",
    "DEBUG",
    "NUM_JOBS",
    "OUT_DIR",
];
const OUTER_PREFIXES: [&str; 7] = [
    "CARGO_PKG_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_BUILD_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    // TARGET/PROFILE/build/tprof-cli-HASH/out: one folder next to the profiles serves all profiles
    // and both libraries, so that nothing is compiled twice.
    let target = out.ancestors().nth(4).unwrap_or(&out).join("injected");
    watch(&root.join("Cargo.toml"));
    let mut all = Vec::new();
    for (folder, library) in LIBRARIES {
        let manifest = root.join(folder).join("Cargo.toml");
        let carried = out.join(library);
        if manifest.exists() {
            let built = build(&manifest, &target, library);
            watch(&root.join(folder).join("Cargo.lock"));
            watch_sources(&built.with_extension("d"));
            fs::copy(built, &carried).expect("copy the injected library");
        } else {
            println!("cargo::warning={folder} is missing: this tprof carries no {library}");
            fs::write(&carried, []).expect("write an empty library");
        }
        all.extend(fs::read(&carried).expect("read the injected library"));
    }
    let hook = root.join("profiler-cli/python/sitecustomize.py");
    watch(&hook);
    all.extend(fs::read(&hook).expect("read the start-up hook of Python"));
    println!("cargo::rustc-env=TPROF_CARRIED_HASH={:016x}", hash(&all));
}

/// Runs this script again when the file changes.
fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// Watches the files from which a library was built: those that cargo lists next to the library,
/// which are the sources of all crates of this repository that it links, and their manifests.
fn watch_sources(list: &Path) {
    let list = fs::read_to_string(list).expect("read cargo's list of a library's sources");
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources).trim_end();
    let mut manifests = BTreeSet::new();
    // Cargo's list escapes spaces in paths.
    for source in sources.replace("\\ ", "\0").split(' ') {
        let source = PathBuf::from(source.replace('\0', " "));
        let manifest = source.ancestors().map(|folder| folder.join("Cargo.toml"));
        manifests.extend(manifest.into_iter().find(|manifest| manifest.exists()));
        watch(&source);
    }
    manifests.iter().for_each(|manifest| watch(manifest));
}

fn build(manifest: &Path, target: &Path, library: &str) -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest);
    cargo.arg("--target-dir").arg(target);
    // Variables that cargo and the developer set for the outer build are removed. Variables for
    // registries and proxies stay.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let listed = OUTER.contains(&&*text);
        if listed || OUTER_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("run cargo for an injected library");
    assert!(status.success(), "{library} did not build: {status}");
    target.join("release").join(library)
}

/// Returns the FNV-1a hash of the libraries, which names their directory. It need not be secure,
/// because their content is compared byte for byte before use.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
