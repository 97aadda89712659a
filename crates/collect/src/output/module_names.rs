//! Reports for `--modules` in which images PyTorch ran without Python's start-up hook, and why.
//!
//! The hook is a `sitecustomize.py` in a directory of PYTHONPATH. When PyTorch is imported, the
//! hook adds a line to a file of the session: pid, CLOCK_MONOTONIC in ns, and `named`, or `missing`
//! with the reason. A forked child has inherited its parent's hook, but adds no line of its own.

use crate::output::losses::Losses;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use tprof_trace::run::BlindSpot;

/// Name of the hook's file.
pub const HOOK_FILE: &str = "sitecustomize.py";
/// The beginning of the hook's file.
pub const HOOK_TITLE: &str = "\"\"\"Start-up hook of `--modules`";
/// The variable that contains the hook's directory.
pub const PYTHON_PATH: &str = "PYTHONPATH";
/// Name of the session's file to which hooks add lines.
const NOTES: &str = "modules";
/// What the report says is missing if the hook did not run.
const WHAT: &str = "names of modules (--modules)";

/// Whether a directory of PYTHONPATH contains tprof's hook.
pub fn holds_hook(directory: &Path) -> bool {
    let mut title = [0; HOOK_TITLE.len()];
    let read =
        File::open(directory.join(HOOK_FILE)).and_then(|mut file| file.read_exact(&mut title));
    read.is_ok() && title == *HOOK_TITLE.as_bytes()
}

/// Returns the most likely reason why the hook did not run in a process with this command line and
/// environment. The caller decides later whether the hook ran.
pub fn why_not(command: &[String], environ: &[u8]) -> &'static str {
    match switch_of(command) {
        Some('S') => return "Python runs with -S, which skips start-up hooks",
        Some('E') => return "Python runs with -E, which ignores PYTHONPATH",
        Some(_) => return "Python runs with -I, which ignores PYTHONPATH",
        None => {}
    }
    let paths = environ
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(PYTHON_PATH.as_bytes())?.strip_prefix(b"="));
    let paths = String::from_utf8_lossy(paths.unwrap_or_default());
    match paths.split(':').any(|path| !path.is_empty() && holds_hook(Path::new(path))) {
        true => "Python ran no start-up hook (it is embedded or frozen, or has no site module)",
        false => "PYTHONPATH was replaced or removed, so Python did not find the start-up hook",
    }
}

/// Returns the first of Python's own switches that prevents the hook from running.
fn switch_of(command: &[String]) -> Option<char> {
    let mut words = command.iter().skip(1);
    while let Some(switches) = words.next().and_then(|word| word.strip_prefix('-')) {
        if switches.is_empty() || switches.starts_with('-') {
            continue;
        }
        for (at, switch) in switches.char_indices() {
            match switch {
                'I' | 'E' | 'S' => return Some(switch),
                // The name of the program follows this switch, and then the program's own
                // arguments.
                'c' | 'm' => return None,
                'W' | 'X' => {
                    if at + 1 == switches.len() {
                        words.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

/// An image of a run with `--modules`, and what is known about its hook.
#[derive(Clone, Debug)]
pub struct HookedImage {
    /// The image's pid in its own pid namespace, which the hook writes.
    pub own_pid: u32,
    /// Pid and program, as `pid NAME`.
    pub process: String,
    /// Time when the image attached, ns.
    pub start_ns: u64,
    /// Number of the image that it was forked from.
    pub forked_from: Option<u64>,
    /// The reason why the hook did not run, if it turns out that it did not (see [`why_not`]).
    pub why_not: &'static str,
    /// Whether the image ran operators of PyTorch.
    pub ran_torch: bool,
}

/// The images of a run with `--modules`, by number.
#[derive(Debug, Default)]
pub struct HookedImages {
    images: HashMap<u64, HookedImage>,
}

impl HookedImages {
    /// Adds an image that attached.
    pub fn began(&mut self, number: u64, image: HookedImage) {
        self.images.insert(number, image);
    }

    /// Notes that an image ran operators of PyTorch.
    pub fn ran_torch(&mut self, number: u64) {
        if let Some(image) = self.images.get_mut(&number) {
            image.ran_torch = true;
        }
    }

    /// Reports the images in which PyTorch ran without the hook. If PyTorch ran in no image,
    /// reports that once for the job. `session` is the session's directory, in which hooks have
    /// written their lines.
    pub fn judge(&self, session: &Path, losses: &mut Losses) {
        let notes = std::fs::read_to_string(session.join(NOTES)).unwrap_or_default();
        let notes: Vec<HookNote<'_>> = notes.lines().filter_map(HookNote::of).collect();
        let mut ran: Vec<(&u64, &HookedImage)> =
            self.images.iter().filter(|(_, image)| image.ran_torch).collect();
        ran.sort_by_key(|(number, _)| **number);
        let blind = |process: &str, why: &str| BlindSpot::new(process, WHAT, why);
        if ran.is_empty() {
            losses.add_blind(blind("the job", "no process ran operators of PyTorch"));
        }
        for (_, image) in ran {
            if let Some(why) = self.why_unnamed(image, &notes) {
                losses.add_blind(blind(&image.process, why));
            }
        }
    }

    /// Returns why the modules of an image have no names; `None` if they have names.
    fn why_unnamed<'a>(&self, image: &HookedImage, notes: &[HookNote<'a>]) -> Option<&'a str> {
        let mut own = image;
        // An image begins after the one that it was forked from, so this loop ends.
        loop {
            let is_own =
                |note: &&HookNote<'_>| note.pid == own.own_pid && note.time_ns >= own.start_ns;
            if let Some(note) = notes.iter().find(is_own) {
                return note.missing;
            }
            match own.forked_from.and_then(|number| self.images.get(&number)) {
                Some(parent) if parent.start_ns <= own.start_ns => own = parent,
                _ => return Some(own.why_not),
            }
        }
    }
}

/// A line that a hook has written.
struct HookNote<'a> {
    pid: u32,
    time_ns: u64,
    /// The reason why modules have no names; `None` if they have names.
    missing: Option<&'a str>,
}

impl HookNote<'_> {
    fn of(line: &str) -> Option<HookNote<'_>> {
        let mut words = line.splitn(4, ' ');
        let (pid, time_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let missing = match words.next()? {
            "named" => None,
            _ => Some(words.next().unwrap_or_default()),
        };
        Some(HookNote { pid, time_ns, missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_switches_of_python_itself_count() {
        let why = |text: &str| {
            let command: Vec<String> = text.split(' ').map(str::to_owned).collect();
            switch_of(&command)
        };
        assert_eq!(why("python -I train.py"), Some('I'));
        assert_eq!(why("python -uE train.py"), Some('E'));
        assert_eq!(why("python -W ignore -X dev -S train.py"), Some('S'));
        for plain in ["python train.py -I", "python -c import -S", "python -Wignore::E -m x -I"] {
            assert_eq!(why(plain), None, "{plain}");
        }
    }

    fn image(own_pid: u32, start_ns: u64, forked_from: Option<u64>) -> HookedImage {
        let process = format!("{own_pid} python");
        HookedImage { own_pid, process, start_ns, forked_from, why_not: "-I", ran_torch: true }
    }

    fn judged(images: [HookedImage; 2], notes: &str) -> Vec<(String, String)> {
        let session = tempfile::tempdir().unwrap();
        std::fs::write(session.path().join(NOTES), notes).unwrap();
        let mut hooked = HookedImages::default();
        for (number, image) in (1..).zip(images) {
            hooked.began(number, image);
        }
        let mut losses = Losses::default();
        hooked.judge(session.path(), &mut losses);
        losses.blind().iter().map(|b| (b.process.clone(), b.why.clone())).collect()
    }

    #[test]
    fn a_fork_inherits_the_hook_and_another_program_does_not() {
        let notes = "7 150 named\n";
        assert_eq!(judged([image(7, 100, None), image(8, 200, Some(1))], notes), []);
        let other = |pid: u32| (format!("{pid} python"), "-I".to_owned());
        assert_eq!(judged([image(7, 100, None), image(8, 200, None)], notes), [other(8)]);
        // The same process runs another program, whose hook has written no line.
        assert_eq!(judged([image(7, 100, None), image(7, 200, None)], notes), [other(7)]);
    }

    #[test]
    fn the_reason_that_a_hook_wrote_replaces_the_guess() {
        let notes = "7 150 missing PyTorch 2.0 has no torch.compiler\n8 250 named\n";
        let found = judged([image(7, 100, None), image(8, 200, None)], notes);
        assert_eq!(
            found,
            [("7 python".to_owned(), "PyTorch 2.0 has no torch.compiler".to_owned())]
        );
    }

    #[test]
    fn a_job_without_pytorch_is_reported_once() {
        let idle = |pid| HookedImage { ran_torch: false, ..image(pid, 1, None) };
        let found = judged([idle(7), idle(8)], "");
        assert_eq!(found.len(), 1);
        assert_eq!(found.first().map(|(process, _)| process.as_str()), Some("the job"));
    }
}
