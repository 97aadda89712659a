//! Stacks are complete and have names: with and without frame pointers, in C, C++ and Rust.

use serde_json::Value;
use tprof_tests::{
    EXACT, Job, Kind, Scratch, build, expected, memory_report, need_some, program, stack, traced,
};

/// Frames of the chain in `stacks.c`, innermost first, each with the marker of its line.
const CHAIN: [(&str, &str); 6] = [
    ("victim_a", "line: a "),
    ("victim_inlined", "line: inlined "),
    ("victim_b", "line: b "),
    ("victim_c", "line: c "),
    ("victim_d", "line: d "),
    ("main", "line: main "),
];

fn sites(
    program: impl AsRef<std::ffi::OsStr>,
    options: &[&str],
    with: impl Fn(&str) -> bool,
) -> Vec<Value> {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program), options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    memory_report(&run.run).sites(with)
}

/// Returns the number of the line of `stacks.c` that contains a marker.
fn line_of(marker: &str) -> usize {
    let source = include_str!("../programs/stacks.c");
    1 + source.lines().position(|line| line.contains(marker)).unwrap()
}

#[track_caller]
fn assert_whole_chain(kind: Kind, stacks: &str) {
    let sites =
        sites(build("stacks", kind).unwrap(), &["--mem", "exact", "--stacks", stacks], |frame| {
            frame.starts_with("victim_a")
        });
    let straight: Vec<_> =
        sites.iter().filter(|site| site["bytes"].as_i64() == Some(100 * 501)).collect();
    assert_eq!(straight.len(), 1, "{kind:?} {stacks}: {sites:#?}");
    assert_eq!(straight[0]["allocations"].as_i64(), Some(100));
    let frames = stack(straight[0]);
    let first = frames.iter().position(|frame| frame.starts_with("victim_a")).unwrap();
    for (frame, (function, marker)) in frames[first..].iter().zip(CHAIN) {
        let place = format!("stacks.c:{}", line_of(marker));
        let named = frame.starts_with(function) && frame.contains(&place);
        assert!(named, "{kind:?} {stacks}: {frame:?} should be {function} at {place}: {frames:#?}");
    }
    assert!(frames.len() - first >= CHAIN.len(), "{kind:?} {stacks}: {frames:#?}");
}

#[test]
fn a_chain_without_frame_pointers_is_whole() {
    assert_whole_chain(Kind::Plain, "auto");
    assert_whole_chain(Kind::Plain, "dwarf");
}

#[test]
fn a_chain_with_frame_pointers_is_whole() {
    assert_whole_chain(Kind::FramePointers, "auto");
    assert_whole_chain(Kind::FramePointers, "fp");
}

#[test]
fn a_chain_through_the_c_library_is_whole() {
    for kind in [Kind::Plain, Kind::FramePointers] {
        let sites =
            sites(build("stacks", kind).unwrap(), EXACT, |frame| frame.starts_with("compare"));
        assert_eq!(sites.len(), 1, "{kind:?}: {sites:#?}");
        let frames = stack(&sites[0]);
        assert_eq!(sites[0]["bytes"].as_i64(), Some(701), "{frames:#?}");
        let at = |name: &str| frames.iter().position(|frame| frame.starts_with(name));
        assert!(
            at("victim_d") < at("compare") && at("compare") < at("main"),
            "{kind:?}: {frames:#?}"
        );
    }
}

#[test]
fn a_sampled_stack_is_whole() {
    let sites =
        sites(program("stacks"), &["--mem", "sampled=64"], |frame| frame.starts_with("victim_a"));
    assert!(!sites.is_empty());
    for site in &sites {
        assert!(stack(site).iter().any(|frame| frame.starts_with("main")), "{site:#}");
    }
}

#[test]
fn cxx_names_are_demangled_and_inlined_frames_are_there() {
    for kind in [Kind::Plain, Kind::StaticCxx] {
        let program = need_some!(build("stacks_cxx", kind));
        let sites = sites(program, EXACT, |frame| frame.starts_with("victim_space::"));
        assert_eq!(
            sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(),
            100
        );
        let frames = stack(&sites[0]);
        for name in [
            "victim_space::Box<double>::victim_grow(int)",
            "victim_space::victim_outer(int)",
            "std::vector<double",
        ] {
            assert!(
                frames.iter().any(|frame| frame.starts_with(name)),
                "{kind:?}, {name}: {frames:#?}"
            );
        }
        assert!(frames.iter().any(|frame| frame.contains("lambda")), "{kind:?}: {frames:#?}");
        assert!(!frames.iter().any(|frame| frame.contains("_ZN")), "{kind:?}: {frames:#?}");
    }
}

#[test]
fn rust_names_are_demangled_without_hashes() {
    let program = need_some!(build("stacks_rust", Kind::Plain));
    let sites = sites(program, EXACT, |frame| frame.contains("victim_method"));
    assert_eq!(sites.iter().map(|site| site["bytes"].as_i64().unwrap()).sum::<i64>(), 100 * 1000);
    let frames = stack(&sites[0]);
    assert!(
        frames.iter().any(|frame| frame.contains("stacks_rust::victim_generic")),
        "{frames:#?}"
    );
    assert!(
        frames
            .iter()
            .any(|frame| frame.contains("as stacks_rust::victim_module::Takes>::victim_method")),
        "{frames:#?}"
    );
    assert!(frames.iter().any(|frame| frame.contains("stacks_rust::main")), "{frames:#?}");
    let hashed = |frame: &&str| frame.contains("::h") && frame.contains("17h");
    assert!(!frames.iter().any(|frame| hashed(frame) || frame.contains("_ZN")), "{frames:#?}");
}

/// Returns a job that loads and unloads two libraries, each at the address of the other, 200 times.
fn in_turn() -> Job {
    let libraries = [program("plugin"), program("other_plugin")];
    Job::new(program("dlopen_loop")).arg("200").args(libraries)
}

#[test]
fn code_that_was_unmapped_keeps_its_names() {
    for stacks in ["auto", "fp"] {
        let scratch = Scratch::new();
        let run = traced(&in_turn(), &["--mem", "exact", "--stacks", stacks], &scratch);
        let report = memory_report(&run.run);
        for (name, size) in [("victim_plugin_take", 100), ("victim_other_take", 101)] {
            let sites = report.sites(|frame| frame.starts_with(name));
            let sum = |key: &str| sites.iter().map(|site| site[key].as_i64().unwrap()).sum::<i64>();
            let (found, wanted) = ((sum("allocations"), sum("bytes")), (1000, 1000 * size));
            assert_eq!(found, wanted, "{stacks}: {name}: {sites:#?}");
        }
    }
}

/// In this mode no thread waits for the collector, which reads the mappings some milliseconds
/// later.
#[test]
fn unmapped_code_gets_no_wrong_name_if_no_thread_waits() {
    let scratch = Scratch::new();
    let run = traced(&in_turn(), &["--mem", "exact", "--on-full", "drop"], &scratch);
    let report = memory_report(&run.run);
    let mut named = 0;
    for (name, size) in [("victim_plugin_take", 100), ("victim_other_take", 101)] {
        let of_size = |site: &&Value| {
            let count = site["allocations"].as_i64().unwrap();
            site["bytes"].as_i64() == Some(count * size)
        };
        let sites = report.sites(|frame| frame.contains("plugin"));
        for site in sites.iter().filter(of_size) {
            assert!(stack(site)[0].starts_with(name), "{size}: {site:#}");
            named += site["allocations"].as_i64().unwrap();
        }
    }
    assert!(named + report.lost_of("stacks") >= 2000, "{}", report.0["completeness"]);
}

#[test]
fn code_of_a_process_that_is_killed_at_once_has_its_name() {
    let scratch = Scratch::new();
    let job = Job::new(program("killed_in_library")).arg(program("plugin"));
    let run = traced(&job, EXACT, &scratch);
    assert_eq!(run.outcome.signal, Some(9), "{:?}", run.outcome);
    let report = memory_report(&run.run);
    let sites = report.sites(|frame| frame.starts_with("victim_plugin_take"));
    assert_eq!(sites.len(), 1, "{sites:#?}");
    assert_eq!(sites[0]["allocations"], 10);
    assert!(stack(&sites[0]).iter().any(|frame| frame.starts_with("main")), "{sites:#?}");
}

#[test]
fn a_library_with_its_file_removed_cuts_no_stack() {
    let scratch = Scratch::new();
    let library = scratch.join("removed_at_once.so");
    std::fs::copy(program("plugin"), &library).unwrap();
    let job = Job::new(program("killed_in_library")).arg(&library).arg("removed");
    let run = traced(&job, EXACT, &scratch);
    assert!(!library.exists());
    let sites = memory_report(&run.run).sites(|frame| frame.starts_with("main"));
    let in_library = |site: &&Value| site["bytes"] == 7770;
    assert_eq!(sites.iter().filter(in_library).count(), 1, "{sites:#?}");
}

#[test]
fn a_deep_stack_is_recorded_whole_or_cut_and_counted() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("deep")), EXACT, &scratch);
    let report = memory_report(&run.run);
    assert_eq!(report.in_victims("allocations"), expected(&run.outcome.stdout).allocations);
    let sites = report.sites(|frame| frame.starts_with("victim_deep"));
    let deepest = sites.iter().map(|site| stack(site).len()).max();
    assert!(deepest >= Some(100), "{deepest:?}");
    // The shallower stacks reach main.
    let whole =
        sites.iter().filter(|site| stack(site).iter().any(|frame| frame.starts_with("main")));
    assert!(whole.map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>() >= 100);
}

#[test]
fn a_stack_that_cannot_be_followed_is_not_made_up() {
    let sites = sites(program("stacks_cut"), EXACT, |frame| frame.starts_with("victim_beneath"));
    assert_eq!(sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(), 100);
    for site in &sites {
        let frames = stack(site);
        let names: Vec<&str> =
            frames.iter().map(|frame| frame.split([' ', '(', '+']).next().unwrap()).collect();
        let first = names
            .iter()
            .position(|name| *name == "victim_take")
            .unwrap_or_else(|| panic!("{names:?}"));
        let wanted = ["victim_take", "victim_beneath", "victim_bare"];
        let known = names[first..].iter().zip(wanted).all(|(name, wanted)| *name == wanted);
        let rest = names.get(first + 3..).unwrap_or_default();
        assert!(known, "{frames:#?}");
        match rest.first() {
            Some(&"main") => {}
            // The report has a line in place of the missing frames.
            Some(&"") => assert!(frames.last().unwrap().starts_with("(cut off: "), "{frames:#?}"),
            _ => panic!("{frames:#?}"),
        }
    }
}

#[test]
fn coroutines_stacks_name_their_function() {
    let sites = sites(program("coroutines"), EXACT, |frame| frame.starts_with("victim_coroutine"));
    assert_eq!(sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(), 4000);
}

#[test]
fn no_stacks_are_taken_when_off() {
    let scratch = Scratch::new();
    let run =
        traced(&Job::new(program("stacks")), &["--mem", "exact", "--stacks", "off"], &scratch);
    let report = memory_report(&run.run);
    assert_eq!(report.total("allocations"), expected(&run.outcome.stdout).allocations);
    assert!(report.sites(|_| true).is_empty(), "{:?}", report.sites(|_| true));
}
