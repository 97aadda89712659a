//! Finds the commit of the working tree in which a job is started, from git's own files
//! (gitrepository-layout(5)). Whether the working tree has changes isn't examined, because only git
//! can read its index.

use std::fs;
use std::path::{Path, PathBuf};

/// Largest size of a file that is read, bytes; packed references may be larger.
const MAX_BYTES: u64 = 64 << 10;
/// Largest size of packed references, bytes. The start of a run waits for this reading, so runs of
/// larger projects don't name their commit.
const MAX_PACKED: u64 = 8 << 20;
/// Numbers of hex digits of SHA-1 and of SHA-256.
const DIGITS: [usize; 2] = [40, 64];

/// Returns the commit of `HEAD` in the working tree that contains a directory.
pub fn commit_of(directory: &Path) -> Option<String> {
    let git = directory.ancestors().find_map(git_directory)?;
    let head = read(&git.join("HEAD"), MAX_BYTES)?;
    let head = head.trim();
    let Some(reference) = head.strip_prefix("ref: ") else { return hash(head) };
    // A linked working tree has a HEAD of its own, but uses the references of the main working
    // tree.
    let common = read(&git.join("commondir"), MAX_BYTES).map(|path| git.join(path.trim()));
    let places = [Some(git), common];
    places.iter().flatten().find_map(|place| of_reference(place, reference.trim()))
}

/// Returns the git directory of a working tree. `.git` is that directory, or a file with its path.
fn git_directory(tree: &Path) -> Option<PathBuf> {
    let git = tree.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = read(&git, MAX_BYTES)?;
    Some(tree.join(text.trim().strip_prefix("gitdir: ")?))
}

fn of_reference(git: &Path, reference: &str) -> Option<String> {
    let is_inside = reference.starts_with("refs/") && !reference.contains("..");
    if !is_inside {
        return None;
    }
    if let Some(text) = read(&git.join(reference), MAX_BYTES) {
        return hash(text.trim());
    }
    let packed = read(&git.join("packed-refs"), MAX_PACKED)?;
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(_, name)| *name == reference).and_then(|(commit, _)| hash(commit))
}

fn hash(text: &str) -> Option<String> {
    let is_hash = DIGITS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}

/// Returns the text of a file; `None` if it has more than `most` bytes.
fn read(path: &Path, most: u64) -> Option<String> {
    let about = fs::metadata(path).ok().filter(|about| about.is_file() && about.len() <= most)?;
    (about.len() > 0).then(|| fs::read_to_string(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs git. Returns false if it fails or isn't installed.
    fn git(tree: &Path, words: &[&str]) -> bool {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-C"]).arg(tree).args(words);
        command.output().is_ok_and(|output| output.status.success())
    }

    fn head(tree: &Path) -> String {
        let output = Command::new("git").arg("-C").arg(tree).args(["rev-parse", "HEAD"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn the_commit_is_the_one_that_git_reports() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("src/deep")).unwrap();
        assert_eq!(commit_of(&tree), None, "a temporary directory in no working tree");
        if !git(&tree, &["init", "-q"]) {
            eprintln!("there is no git: only a directory without one was tried");
            return;
        }
        assert_eq!(commit_of(&tree), None, "nothing was committed");
        assert!(git(&tree, &["commit", "-q", "--allow-empty", "-m", "a"]));
        assert_eq!(commit_of(&tree.join("src/deep")), Some(head(&tree)));
        assert!(git(&tree, &["pack-refs", "--all"]));
        assert_eq!(commit_of(&tree), Some(head(&tree)), "the references are packed");
        let other = folder.path().join("other");
        assert!(git(&tree, &["worktree", "add", "-q", "-b", "b", other.to_str().unwrap()]));
        assert!(git(&other, &["commit", "-q", "--allow-empty", "-m", "b"]));
        assert_ne!(head(&other), head(&tree));
        assert_eq!(commit_of(&other), Some(head(&other)), "a linked working tree");
        assert!(git(&tree, &["checkout", "-q", "--detach"]));
        assert_eq!(commit_of(&tree), Some(head(&tree)), "no branch is checked out");
    }
}
