//! Tests the versions of the packages.

use std::fs::read_to_string;
use std::path::Path;

#[test]
fn tprof_and_its_packages_have_one_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let manifest = read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, package) = manifest.split_once("[workspace.package]").unwrap();
    let of_tprof = package.lines().find_map(|line| line.strip_prefix("version = ")).unwrap();
    assert_eq!(of_tprof, format!("\"{version}\""), "Cargo.toml");
    // pip takes both from one place, and a program of another version might not know its options.
    let python = read_to_string(root.join("pyproject.toml")).unwrap();
    assert!(python.contains(&format!("\nsql = [\"tprof-sql=={version}\"]\n")), "pyproject.toml");
}
