//! Chooses the frame of a stack that names a place, and reads from frames and open calls what the
//! thread waits in.

use crate::state::{CallState, FrameState, Layer, RankState, ThreadState};
use tprof_facts::frames::Layer as CodeLayer;
use tprof_facts::labels::base_name;
use tprof_facts::owner::Code;
use tprof_facts::pass_through::is_of_tprof;

/// Beginnings of the names of functions that wait for a device.
const DEVICE_WAITS: [&str; 10] = [
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemcpy",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
];
/// Beginnings of the names of functions for operations between ranks, as they are on stacks.
const MPI: [&str; 2] = ["MPI_", "PMPI_"];
/// Beginnings of the names of the C library's internal functions for locks.
const INTERNAL: [&str; 4] = ["lll_", "futex_", "syscall", "internal_syscall"];
/// Names of functions that are longer than this are shown without parameters.
const LONG: usize = 60;
const NCCL: &str = "nccl";

/// Whether a function is one of MPI that may wait for other ranks.
fn is_mpi(function: &str) -> bool {
    MPI.iter().any(|start| function.starts_with(start))
        && !function.contains("_Init")
        && !function.contains("_Finalize")
}

/// Whether a function waits for a device.
fn is_device_wait(function: &str) -> bool {
    DEVICE_WAITS.iter().any(|start| function.starts_with(start))
}

/// Whether a function is one of NCCL.
fn is_nccl(function: &str) -> bool {
    function.starts_with(NCCL)
}

impl FrameState {
    fn code(&self) -> Code<'_> {
        let layer = match self.layer {
            Layer::Native => CodeLayer::Native,
            Layer::Python => CodeLayer::Python,
        };
        Code { layer, file: &self.file, module: base_name(&self.module) }
    }

    /// Returns the function without what the C library adds to its own names.
    pub fn plain_function(&self) -> &str {
        let name = self.function.split('@').next().unwrap_or_default();
        if self.layer == Layer::Python || !self.code().is_system() {
            return &self.function;
        }
        let name = name.trim_start_matches('_');
        name.strip_prefix("GI_").map_or(name, |name| name.trim_start_matches('_'))
    }

    /// Returns function, file and line as text.
    pub fn shown(&self) -> String {
        let function = match self.plain_function() {
            "" => "(no name)",
            // The parameters of a C++ function would hide the rest of the line.
            name if name.len() > LONG && self.layer == Layer::Native => {
                let end = name.find('(').filter(|end| *end > 0).unwrap_or(name.len());
                &name[..end]
            }
            name => name,
        };
        match (self.file.is_empty(), self.line, base_name(&self.module)) {
            (false, 0, _) => format!("{function} ({})", self.file),
            (false, line, _) => format!("{function} ({}:{line})", self.file),
            (true, _, "") => function.to_owned(),
            (true, _, module) => format!("{function} ({module})"),
        }
    }
}

impl ThreadState {
    /// Returns the frames to show: without tprof's own hooks, and, if there are Python functions,
    /// without the interpreter's native frames, which execute these functions.
    pub fn shown_frames(&self) -> Vec<&FrameState> {
        let is_hook = |frame: &&FrameState| is_of_tprof(base_name(&frame.module));
        let mut shown: Vec<_> = self.frames.iter().filter(|frame| !is_hook(frame)).collect();
        if let Some(outermost) = shown.iter().rposition(|frame| frame.layer == Layer::Python) {
            shown.truncate(outermost + 1);
            shown.retain(|frame| !frame.code().is_interpreter());
        }
        shown
    }

    /// Returns the frame that best names where the thread is: the innermost of the user's own code;
    /// otherwise the innermost with a line, or with a name.
    pub fn place(&self) -> Option<&FrameState> {
        let frames = || self.frames.iter();
        let own = frames().find(|frame| frame.code().is_own() && frame.line > 0);
        let lined = || frames().find(|frame| frame.line > 0 && !frame.code().is_system());
        let named = || frames().find(|frame| !frame.function.is_empty());
        own.or_else(lined).or_else(named)
    }

    /// Returns the innermost function that has a name and isn't internal to the C library.
    pub fn innermost(&self) -> Option<&str> {
        let mut names = self.frames.iter().map(FrameState::plain_function);
        let is_internal = |name: &str| INTERNAL.iter().any(|start| name.starts_with(start));
        names.find(|name| !name.is_empty() && !is_internal(name))
    }

    /// Returns the MPI function in which the thread is: the one that the program called.
    pub fn mpi_call(&self) -> Option<&str> {
        let mut outermost_first = self.frames.iter().rev().filter(|f| f.layer == Layer::Native);
        let frame = outermost_first.find(|frame| is_mpi(&frame.function))?;
        Some(frame.function.strip_prefix('P').unwrap_or(&frame.function))
    }

    /// Whether the thread waits for a device or is in a call of NCCL. A running thread may have no
    /// native frames, so of it this is unknown: `None`.
    pub fn awaits_device(&self) -> Option<bool> {
        let mut native = self.frames.iter().filter(|frame| frame.layer == Layer::Native).peekable();
        native.peek()?;
        Some(native.any(|frame| is_nccl(&frame.function) || is_device_wait(&frame.function)))
    }

    /// Returns the function on the stack that waits for a device.
    pub fn device_wait(&self) -> Option<&str> {
        let names = self.frames.iter().map(|frame| frame.function.as_str());
        names.rev().find(|name| is_device_wait(name))
    }
}

impl CallState {
    /// Whether the call waits for a device or for other ranks.
    pub fn waits_for_others(&self) -> bool {
        let function = &self.function;
        is_mpi(function) || is_device_wait(function) || is_nccl(function)
    }
}

impl RankState {
    /// Returns the hooked call that the driving thread is in.
    pub fn open_call(&self) -> Option<&CallState> {
        let driving = self.driving()?;
        self.calls.iter().find(|call| call.tid == driving.tid)
    }

    /// Returns the MPI function in which the driving thread is, and since when, if that is known.
    pub fn mpi_call(&self) -> Option<(&str, Option<u64>)> {
        let known = self.open_call().filter(|call| is_mpi(&call.function));
        match known {
            Some(call) => Some((&call.function, Some(call.age_ns))),
            None => self.driving()?.mpi_call().map(|function| (function, None)),
        }
    }

    /// Returns the function in which the driving thread waits for a device.
    pub fn device_wait(&self) -> Option<&str> {
        let called = self.open_call().map(|call| call.function.as_str());
        called.filter(|name| is_device_wait(name)).or(self.driving()?.device_wait())
    }

    /// Whether the driving thread waits for a device or is in a call of NCCL. Of a running thread
    /// without native frames this may be unknown: `None`.
    pub fn awaits_device(&self) -> Option<bool> {
        let is_called =
            |call: &CallState| is_device_wait(&call.function) || is_nccl(&call.function);
        match self.open_call().is_some_and(is_called) {
            true => Some(true),
            false => self.driving()?.awaits_device(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, line: u32, module: &str, layer: Layer) -> FrameState {
        let (function, file, module) = (function.into(), file.into(), module.into());
        FrameState { function, file, line, module, layer }
    }

    #[test]
    fn the_innermost_line_of_the_users_own_code_names_the_place() {
        let frames = vec![
            frame("__GI___clock_nanosleep", "", 0, "/usr/lib/libc.so.6", Layer::Native),
            frame("recv", "/usr/lib/python3.11/socket.py", 7, "", Layer::Python),
            frame("load", "/home/u/train.py", 41, "", Layer::Python),
            frame("main", "/home/u/train.py", 99, "", Layer::Python),
        ];
        let thread = ThreadState { frames, ..ThreadState::default() };
        assert_eq!(thread.place().unwrap().shown(), "load (/home/u/train.py:41)");
        assert_eq!(thread.innermost(), Some("clock_nanosleep"));
        let library = ThreadState { frames: thread.frames[..2].to_vec(), ..thread.clone() };
        assert_eq!(library.place().unwrap().line, 7);
        let system = ThreadState { frames: thread.frames[..1].to_vec(), ..thread };
        assert_eq!(system.place().unwrap().shown(), "clock_nanosleep (libc.so.6)");
        assert_eq!(ThreadState::default().place(), None);
    }

    #[test]
    fn the_interpreters_native_frames_are_shown_only_without_python_functions() {
        let frames = vec![
            frame("read", "", 0, "/usr/lib/libc.so.6", Layer::Native),
            frame("os_read", "Modules/posixmodule.c", 9, "/usr/bin/python3.11", Layer::Native),
            frame("load", "/home/u/train.py", 41, "", Layer::Python),
            frame("Py_RunMain", "Modules/main.c", 1, "/usr/bin/python3.11", Layer::Native),
        ];
        let shown = |frames: &[FrameState]| {
            let thread = ThreadState { frames: frames.to_vec(), ..ThreadState::default() };
            thread
                .shown_frames()
                .into_iter()
                .map(|frame| frame.function.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(&frames), ["read", "load"]);
        assert_eq!(shown(&frames[..2]), ["read", "os_read"]);
    }

    #[test]
    fn frames_tell_the_call_that_waits_for_others() {
        let of = |names: &[&str]| {
            let frames = names.iter().map(|name| frame(name, "", 0, "lib.so", Layer::Native));
            ThreadState { frames: frames.collect(), ..ThreadState::default() }
        };
        assert_eq!(of(&["poll", "PMPI_Allreduce", "main"]).mpi_call(), Some("MPI_Allreduce"));
        assert_eq!(of(&["poll", "MPI_Init", "main"]).mpi_call(), None);
        assert_eq!(of(&["ioctl", "cudaStreamSynchronize"]).awaits_device(), Some(true));
        assert_eq!(of(&["read", "main"]).awaits_device(), Some(false));
        assert_eq!(of(&[]).awaits_device(), None);
    }

    #[test]
    fn an_open_call_tells_what_a_thread_without_frames_waits_in() {
        let of = |function: &str, tid| {
            let thread = ThreadState { tid: 7, ..ThreadState::default() };
            let calls = vec![CallState { tid, function: function.into(), age_ns: 5 }];
            RankState { calls, threads: vec![thread], ..RankState::default() }
        };
        assert_eq!(of("MPI_Allreduce", 7).mpi_call(), Some(("MPI_Allreduce", Some(5))));
        assert_eq!(of("MPI_Allreduce", 8).mpi_call(), None, "of another thread");
        assert_eq!(of("cudaStreamSynchronize", 7).device_wait(), Some("cudaStreamSynchronize"));
        assert_eq!(of("cudaStreamSynchronize", 7).awaits_device(), Some(true));
        assert_eq!(of("cudaGraphLaunch", 7).awaits_device(), None);
    }
}
