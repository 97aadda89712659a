//! Tests of the packages for `pip install`: the wheel has the program and the module, and the
//! source distribution has everything that they are built from.

use std::path::{Path, PathBuf};
use std::process::Command;

use tprof_tests::{Job, Scratch, client_python, need_some, target_dir, tprof_at};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command to its end and returns its output.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Makes a wheel (`build --release`) or a source distribution (`sdist`) with maturin.
fn packed(python: &Path, command: &[&str], into: &Path) -> PathBuf {
    // The program that every other test uses is built already, and is packed.
    tprof_at();
    printed(
        Command::new(python.with_file_name("maturin"))
            .args(command)
            .arg("--out")
            .arg(into)
            .current_dir(root())
            .env("CARGO_TARGET_DIR", target_dir()),
    );
    let mut made = std::fs::read_dir(into).unwrap();
    made.next().unwrap().unwrap().path()
}

#[test]
fn the_wheel_installs_the_program_and_the_module() {
    let python = need_some!(client_python());
    let scratch = Scratch::new();
    let wheel = packed(&python, &["build", "--release", "--locked"], &scratch.join("wheel"));
    let home = scratch.join("venv");
    printed(Command::new("python3").args(["-m", "venv"]).arg(&home));
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"];
    let python = home.join("bin/python");
    printed(Command::new(&python).args(pip).arg(wheel));

    let version = format!("tprof {}\n", env!("CARGO_PKG_VERSION"));
    let tprof = home.join("bin/tprof");
    assert_eq!(printed(Command::new(&tprof).arg("--version")), version);
    assert_eq!(printed(Command::new(&python).args(["-m", "tprof", "--version"])), version);
    let script = "import tprof, importlib.metadata as m; print('tprof', m.version('tprof'))\n\
        for _ in range(4): tprof.step()";
    let run = scratch.join("run");
    let job = Job::new(&tprof).args(["run", "--quiet", "-o"]).arg(&run).arg("--");
    let outcome = job.arg(&python).args(["-c", script]).run_in(scratch.cwd()).expect_code(0);
    assert_eq!(outcome.stdout, version);
    let report =
        Command::new(&python).args(["-m", "tprof", "report", "steps", "--json"]).arg(&run).output();
    let steps: serde_json::Value = serde_json::from_slice(&report.unwrap().stdout).unwrap();
    assert_eq!(steps["tables"]["step_times"][0]["steps"], 3, "{steps:#}");
}

#[test]
fn the_source_distribution_has_what_the_build_reads() {
    let python = need_some!(client_python());
    let scratch = Scratch::new();
    let archive = packed(&python, &["sdist"], &scratch.join("made"));
    printed(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch.path()));
    let source = scratch.join(format!("tprof-{}", env!("CARGO_PKG_VERSION")));
    for package in ["profiler-cli", "preload-shim", "cupti-agent"] {
        let manifest = source.join(package).join("Cargo.toml");
        let words = ["metadata", "--locked", "--offline", "--format-version", "1"];
        let known = printed(Command::new("cargo").args(words).arg("--manifest-path").arg(manifest));
        let known: serde_json::Value = serde_json::from_str(&known).unwrap();
        for of in known["packages"].as_array().unwrap() {
            let path = Path::new(of["manifest_path"].as_str().unwrap());
            assert!(path.exists(), "{}", path.display());
        }
    }
    // Files that the program includes: pages, the start-up hook of Python, texts.
    for part in
        ["profiler-cli/src", "profiler-cli/python", "crates", "preload-shim/src", "cupti-agent/src"]
    {
        for file in files(&root().join(part)) {
            let file = file.strip_prefix(root()).unwrap();
            let is_of_tests = file.components().any(|part| part.as_os_str() == "tests");
            assert!(is_of_tests || source.join(file).exists(), "{} is missing", file.display());
        }
    }
}

#[test]
fn one_version_number_is_that_of_program_and_changelog() {
    let is_version = |line: &&str| line.starts_with("version = ") || line.starts_with("version=");
    let folders = ["crates", "profiler-cli", "preload-shim", "cupti-agent", "tests"];
    let manifests = folders.iter().flat_map(|folder| files(&root().join(folder)));
    let manifests = manifests.filter(|path| path.ends_with("Cargo.toml"));
    let mut manifests: Vec<PathBuf> =
        manifests.chain(["Cargo.toml", "pyproject.toml"].map(|path| root().join(path))).collect();
    manifests.sort();
    let mut found: Vec<String> = Vec::new();
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).unwrap();
        let manifest = manifest.strip_prefix(root()).unwrap().display();
        found.extend(text.lines().filter(is_version).map(|line| format!("{manifest}: {line}")));
    }
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(found, [format!("Cargo.toml: version = \"{version}\"")]);
    // Sections of the changelog: the unreleased one, and then each version from the newest on.
    let changelog = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let mut sections = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    match sections.next() {
        Some("Unreleased") => {}
        first => assert_eq!(first.and_then(|text| text.split(' ').next()), Some(version)),
    }
    let numbers = |text: &str| -> Vec<u64> {
        let words = text.split(' ').next().unwrap().split('.');
        words.map(|word| word.parse().unwrap()).collect()
    };
    let mut newest = numbers(version);
    for section in sections {
        assert!(numbers(section) <= newest, "{section} is newer than {newest:?}");
        newest = numbers(section);
    }
}

#[test]
fn the_page_for_an_index_has_no_link_into_the_checkout() {
    let page = std::fs::read_to_string(root().join("python/README.md")).unwrap();
    let project = std::fs::read_to_string(root().join("pyproject.toml")).unwrap();
    assert!(project.contains("\nreadme = \"python/README.md\"\n"));
    for link in page.split("](").skip(1) {
        assert!(link.starts_with("https://"), "{}", link.lines().next().unwrap_or_default());
    }
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found
}
