//! Shortens stacks for reading: leaves out allocators, the program's entry and the interpreter, and
//! limits the number and width of frames.

use std::sync::Arc;

use tprof_facts::frames::{CUT, Layer, NO_STACK};
use tprof_facts::functions::without_arguments;
use tprof_facts::labels::base_name;
use tprof_facts::owner::Code;
use tprof_ui::columns::{self, shorten};

/// Smallest width to which a caller's name is cut. If there is less room, the caller is left out.
const LEAST_NAME: usize = 12;
/// Largest number of frames of a stack that are shown.
const MOST_FRAMES: usize = 6;
/// Largest number of native frames, called by a Python function, that are shown; of the
/// interpreter's own only the innermost is.
const MOST_CALLED: usize = 2;

/// Functions that allocate memory. Their callers are shown instead of them.
const ALLOCATORS: [&str; 31] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "_int_malloc",
    "operator new",
    "__rust_alloc",
    "__rust_realloc",
    "__rust_alloc_zeroed",
    "__rdl_alloc",
    "__rdl_realloc",
    "__rg_alloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawRealloc",
    "PyMem_RawMalloc",
    "PyMem_RawCalloc",
    "PyMem_RawRealloc",
    "PyMem_Malloc",
    "PyObject_Malloc",
    "_PyObject_Malloc",
    "xmalloc",
    "xrealloc",
];

/// Prefixes of the names of further functions that allocate memory.
const ALLOCATOR_PREFIXES: [&str; 16] = [
    "operator new(",
    "operator new[](",
    "std::allocator<",
    "std::allocator_traits<",
    "std::__new_allocator<",
    "__gnu_cxx::new_allocator<",
    "__gnu_cxx::__alloc_traits<",
    "std::_Vector_base<",
    "alloc::alloc::",
    "alloc::raw_vec::",
    "__rustc::__rust_",
    "<alloc::alloc::Global",
    "hashbrown::raw::alloc::",
    "alloc::vec::Vec<",
    "std::__detail::_Hashtable_alloc<",
    "alloc::boxed::Box<",
];

/// Functions that call `main` or a thread's start function. These functions and their callers are
/// not shown.
const STARTERS: [&str; 8] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "clone",
    "clone3",
    "__clone3",
    "start_thread",
];

/// Returns the frames of a stack to show, innermost first, each in at most `width` columns. If the
/// stack was cut, the last line says so.
pub fn shown(stack: &[Arc<str>], width: usize) -> Vec<String> {
    let (stack, cut) = without_cut(stack);
    let mut shown = frames_shown(stack, width);
    shown.extend(cut.map(|cut| shorten(cut, width)));
    shown
}

/// Separates the frames of a stack from the mark that says that it was cut.
fn without_cut(stack: &[Arc<str>]) -> (&[Arc<str>], Option<&str>) {
    match stack.split_last() {
        Some((cut, frames)) if cut.starts_with(CUT) => (frames, Some(cut)),
        _ => (stack, None),
    }
}

fn frames_shown(stack: &[Arc<str>], width: usize) -> Vec<String> {
    if stack.is_empty() {
        return vec![NO_STACK.to_owned()];
    }
    if let Some(python) = stack.iter().position(|frame| is_python(frame)) {
        return with_python(stack, python, width);
    }
    let from = stack.iter().position(|frame| !is_allocator(frame)).unwrap_or(0);
    // A starter's callers are left out too: they are the program's entry code, which often has no
    // name.
    let starter = stack[from..].iter().position(|frame| is_starter(frame));
    let to = starter.filter(|&at| at > 0).map_or(stack.len(), |at| from + at);
    // Recursive calls of a function are one line.
    first_lines(stack[from..to].iter().map(|frame| &**frame), "", width)
}

/// Returns the first frames, one per line, and in any case the innermost frame of the user's own
/// code, because people look for that. `of` is added to the number of omitted frames.
fn first_lines<'s>(frames: impl Iterator<Item = &'s str>, of: &str, width: usize) -> Vec<String> {
    let mut runs: Vec<(&str, usize)> = Vec::new();
    for frame in frames {
        match runs.last_mut() {
            Some((last, times)) if function(last) == function(frame) => *times += 1,
            _ => runs.push((frame, 1)),
        }
    }
    let own = runs.iter().position(|(frame, _)| is_own(frame)).filter(|at| *at >= MOST_FRAMES);
    let head = if own.is_some() { MOST_FRAMES - 1 } else { MOST_FRAMES.min(runs.len()) };
    let line = |(frame, times): &(&str, usize)| {
        let line = frame_line(frame, width.saturating_sub(8));
        if *times > 1 { format!("{line} x{times}") } else { line }
    };
    let more = |of_runs: &[(&str, usize)]| match of_runs.iter().map(|(_, times)| times).sum() {
        0_usize => None,
        1 => Some(format!("... 1 more frame{of}")),
        left => Some(format!("... {left} more frames{of}")),
    };
    let mut shown: Vec<String> = runs[..head].iter().map(line).collect();
    let after = match own {
        Some(own) => {
            shown.extend(more(&runs[head..own]));
            shown.push(line(&runs[own]));
            own + 1
        }
        None => head,
    };
    shown.extend(more(&runs[after..]));
    shown
}

/// Does the same as [`shown`] for a stack whose innermost Python frame is at `python`. Shows the
/// native functions that this frame called, as far as there is room, then the Python frames. The
/// interpreter's frames between them are not shown.
fn with_python(stack: &[Arc<str>], python: usize, width: usize) -> Vec<String> {
    let native: Vec<&str> =
        stack[..python].iter().map(|frame| &**frame).filter(|frame| !is_allocator(frame)).collect();
    let most = if native.first().is_some_and(|frame| is_cpython(frame)) { 1 } else { MOST_CALLED };
    let mut shown: Vec<String> =
        native.iter().take(most).map(|frame| frame_line(frame, width)).collect();
    match native.len().saturating_sub(most) {
        0 => {}
        1 => shown.push(frame_line(native[most], width)),
        more => shown.push(format!("... {more} frames of the interpreter and its libraries")),
    }
    let callers = stack[python..].iter().map(|frame| &**frame).filter(|frame| is_python(frame));
    shown.extend(first_lines(callers, " of Python", width));
    shown
}

/// Whether a frame is the user's own code: its file is outside packages, libraries and system
/// directories.
fn is_own(frame: &str) -> bool {
    let file = split(frame).1.and_then(|place| Some(place.rsplit_once(':')?.0));
    let layer = if is_python(frame) { Layer::Python } else { Layer::Native };
    file.is_some_and(|file| Code { layer, file, module: "" }.is_own())
}

/// Whether a frame is a Python function: its place is a Python file, generated code, or in the
/// interpreter (`<string>`, `<frozen runpy>`).
pub fn is_python(frame: &str) -> bool {
    split(frame).1.is_some_and(|place| {
        let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
        file.ends_with(".py") || file.starts_with('<') && file.ends_with('>')
    })
}

/// Whether a native frame is in a source file of CPython's objects, or a function of its interface.
fn is_cpython(frame: &str) -> bool {
    let function = function(frame);
    let place = split(frame).1.unwrap_or_default();
    let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
    let is_interface = function.starts_with("Py") || function.starts_with("_Py");
    is_interface || file.ends_with("object.c") || is_interpreter(frame)
}

/// Whether a frame is in Python's interpreter: the function that runs Python code, or a place in the
/// interpreter without a name.
pub fn is_interpreter(frame: &str) -> bool {
    let function = function(frame);
    let starts = |start: &str| function.strip_prefix(start).is_some_and(|rest| rest.contains('+'));
    function == "_PyEval_EvalFrameDefault" || starts("python3") || starts("libpython3")
}

/// Formats an allocation site as one line: the frame that names it, then as many of its callers as
/// fit.
pub fn name(stack: &[Arc<str>], width: usize) -> String {
    let (stack, _) = without_cut(stack);
    let python = stack.iter().position(|frame| is_python(frame));
    let own = python
        .or_else(|| stack.iter().position(|frame| !is_allocator(frame) && !is_library(frame)));
    let own = own.or_else(|| stack.iter().position(|frame| !is_allocator(frame))).unwrap_or(0);
    let Some(frame) = stack.get(own) else { return NO_STACK.to_owned() };
    // The innermost frame of the user's own code is always in the line.
    let mine = stack.iter().position(|frame| is_own(frame)).filter(|at| *at > own);
    let end = mine.map(|at| format!(" \u{2026} {}", frame_line(&stack[at], width / 2)));
    let width = width - end.as_ref().map_or(0, |end| columns::width(end)).min(width);
    let mut line = frame_line(frame, width);
    let mut callee = function(frame);
    let until = mine.unwrap_or(stack.len());
    for caller in stack[own + 1..until].iter().filter(|f| python.is_none() || is_python(f)) {
        let name = match python {
            // In Python, angle brackets are a part of the name: `<module>`.
            Some(_) => function(caller).to_owned(),
            None => without_arguments(&function(caller).replace("(anonymous namespace)::", "")),
        };
        if is_starter(caller) {
            break;
        }
        if function(caller) == callee {
            continue;
        }
        let room = width.saturating_sub(columns::width(&line) + 3);
        if room < LEAST_NAME {
            break;
        }
        line += &format!(" < {}", shorten(&name, room));
        callee = function(caller);
    }
    line + &end.unwrap_or_default()
}

/// Whether a frame is in a container of the language's library. The caller of such a frame says
/// more about an allocation.
fn is_library(frame: &str) -> bool {
    const LIBRARIES: [&str; 7] =
        ["std::", "__gnu_cxx::", "alloc::", "core::", "hashbrown::", "<alloc::", "<core::"];
    LIBRARIES.iter().any(|library| function(frame).starts_with(library))
}

/// Returns the function of a frame.
pub fn function(frame: &str) -> &str {
    split(frame).0
}

/// Shortens a function's name to at most `width` columns.
pub fn brief(function: &str, width: usize) -> String {
    shorten(&without_arguments(&function.replace("(anonymous namespace)::", "")), width)
}

fn is_allocator(frame: &str) -> bool {
    let function = function(frame);
    ALLOCATORS.contains(&function)
        || ALLOCATOR_PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

fn is_starter(frame: &str) -> bool {
    STARTERS.contains(&function(frame))
}

/// Splits a frame into its function and the place, without the brackets.
fn split(frame: &str) -> (&str, Option<&str>) {
    match frame.rsplit_once(" (") {
        Some((function, place)) if place.ends_with(')') && !place.starts_with(')') => {
            (function, place.strip_suffix(')'))
        }
        _ => (frame, None),
    }
}

fn frame_line(frame: &str, width: usize) -> String {
    let (function, place) = split(frame);
    let place = place.map(base_name);
    let tail = place.map_or(0, |place| columns::width(place) + 3);
    let room = width.saturating_sub(tail).max(width / 3);
    let mut function = function.to_owned();
    if columns::width(&function) > room {
        function = without_arguments(&function.replace("(anonymous namespace)::", ""));
    }
    let function = shorten(&function, room);
    let line = match place {
        Some(place) => format!("{function} ({place})"),
        None => function,
    };
    shorten(&line, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<Arc<str>> {
        frames.iter().map(|&frame| Arc::from(frame)).collect()
    }

    #[test]
    fn the_innermost_frame_of_the_users_code_is_always_shown() {
        let inside = "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py";
        let mut frames: Vec<String> = vec!["at::empty (libtorch_cpu.so)".to_owned()];
        frames.extend((0..8).map(|at| format!("f{at} ({inside}:{at})")));
        frames.push("train_step (/home/me/b_leak.py:12)".to_owned());
        frames.push("main (/home/me/b_leak.py:21)".to_owned());
        frames.push("<module> (/home/me/b_leak.py:30)".to_owned());
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        let lines = shown(&stack(&frames), 80);
        assert_eq!(
            lines[5..],
            [
                "f4 (module.py:4)",
                "... 3 more frames of Python",
                "train_step (b_leak.py:12)",
                "... 2 more frames of Python"
            ]
        );
        let line = name(&stack(&frames), 60);
        assert!(line.starts_with("f0 (module.py:0) < "), "{line}");
        assert!(line.ends_with(" \u{2026} train_step (b_leak.py:12)"), "{line}");
        assert!(columns::width(&line) <= 60, "{line}");
    }

    #[test]
    fn allocators_and_starters_are_left_out() {
        let stack = stack(&[
            "operator new(unsigned long) (new_op.cc:50)",
            "std::vector<int>::push_back (/usr/include/c++/12/bits/stl_vector.h:1281)",
            "main (/home/u/train.cc:12)",
            "__libc_start_main_impl (libc-start.c:360)",
            "_start (train)",
        ]);
        assert_eq!(
            shown(&stack, 72),
            ["std::vector<int>::push_back (stl_vector.h:1281)", "main (train.cc:12)"]
        );
        assert_eq!(name(&stack, 72), "main (train.cc:12)");
    }

    #[test]
    fn a_cut_stack_has_a_line_that_says_so() {
        let deep = ["(cut off: too deep)"; 1];
        let mut frames = vec!["malloc (libc.so.6)"];
        frames.extend(["descend (train.cc:9)"; 190]);
        frames.extend(deep);
        let stack = stack(&frames);
        assert_eq!(shown(&stack, 72), ["descend (train.cc:9) x190", "(cut off: too deep)"]);
        assert_eq!(name(&stack, 72), "descend (train.cc:9)");
    }

    #[test]
    fn a_stack_of_only_omitted_frames_is_shown_whole() {
        assert_eq!(shown(&stack(&["malloc (libc.so.6)"]), 72), ["malloc (libc.so.6)"]);
        assert_eq!(shown(&stack(&["_start (a)"]), 72), ["_start (a)"]);
        assert_eq!(shown(&[], 72), [NO_STACK]);
    }

    #[test]
    fn python_functions_are_shown_instead_of_the_interpreters() {
        let frames = stack(&[
            "_PyObject_Malloc (obmalloc.c:9)",
            "PyByteArray_Resize (bytearrayobject.c:234)",
            "bytearray___init___impl (bytearrayobject.c:819)",
            "type_call (typeobject.c:1673)",
            "_PyObject_MakeTpCall (call.c:240)",
            "Model.__init__ (/home/u/train.py:6)",
            "slot_tp_init (typeobject.c:7714)",
            "main (/home/u/train.py:19)",
            "<module> (<frozen runpy>:88)",
            "Py_BytesMain (python3.11)",
        ]);
        let lines = shown(&frames, 72);
        assert_eq!(lines[0], "PyByteArray_Resize (bytearrayobject.c:234)");
        assert_eq!(lines[1], "... 3 frames of the interpreter and its libraries");
        assert_eq!(
            lines[2..],
            ["Model.__init__ (train.py:6)", "main (train.py:19)", "<module> (<frozen runpy>:88)"]
        );
        assert_eq!(name(&frames, 72), "Model.__init__ (train.py:6) < main < <module>");
        let mut deep = vec!["walk (tree.py:7)"; 30];
        deep.extend(["a (t.py:1)", "b (t.py:2)", "c (t.py:3)", "d (t.py:4)", "e (t.py:5)"]);
        deep.extend(["f (t.py:6)", "g (t.py:7)"]);
        let lines = shown(&stack(&deep), 72);
        assert_eq!(lines[0], "walk (tree.py:7) x30");
        assert_eq!(lines.last().unwrap(), "... 2 more frames of Python");
    }

    #[test]
    fn recursion_and_depth_are_counted() {
        let mut frames = vec!["walk (tree.c:7)"; 30];
        frames.extend(["a", "b", "c", "d", "e", "f", "main"]);
        let lines = shown(&stack(&frames), 72);
        assert_eq!(lines[0], "walk (tree.c:7) x30");
        assert_eq!(lines.last().unwrap(), "... 2 more frames");
    }

    #[test]
    fn long_names_lose_their_arguments_first() {
        let long = "void at::native::(anonymous namespace)::cpu_kernel<std::tuple<float, float>, \
                    at::native::Add<float>>(at::TensorIteratorBase&, float&&) (/src/aten/Loops.h:99)";
        let line = frame_line(long, 72);
        assert!(line.chars().count() <= 72, "{line}");
        assert!(line.starts_with("void at::native::") && line.ends_with("(Loops.h:99)"), "{line}");
        assert_eq!(without_arguments("f<a<b>>::operator()(int)"), "f<..>::operator()()");
    }
}
