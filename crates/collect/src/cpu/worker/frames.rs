//! The stack of a sample: the kernel's frames, the user's unwound, Python's put in.

use super::super::sample::Frame;
use super::super::unwind;
use super::Worker;
use crate::perf::record::{self, Registers};
use crate::python::{PyStack, merge};
use std::path::Path;
use tprof_wire::env;
use tprof_wire::record::StackEnd;

impl Worker {
    /// Kernel frames, then the user's.
    pub(super) fn frames(
        &mut self,
        pid: u32,
        chain: &[u8],
        registers: Option<Registers>,
        stack: &[u8],
    ) -> (Vec<Frame>, StackEnd) {
        let mut frames = Vec::new();
        let mut end = StackEnd::Whole;
        let mut first = true;
        record::chain(chain, |kernel, address| match kernel {
            true => frames.push(Frame::Kernel(address)),
            false => {
                // The first is where it was; the others are return addresses.
                frames.push(Frame::Address(address.wrapping_add(u64::from(first))));
                first = false;
            }
        });
        if !first {
            self.report_modules(pid, &frames);
        }
        if let Some(registers) = registers.filter(|at| self.spaces.holds(pid, at.pc)) {
            self.scratch.clear();
            end = unwind::walk(&mut self.spaces, pid, registers, stack, &mut self.scratch);
            frames.extend(self.scratch.iter().map(|frame| Frame::Address(*frame)));
        }
        (frames, end)
    }

    /// Whether a thread ran code of tprof's library: the cost of its recording.
    pub(super) fn is_in_library(
        &self,
        pid: u32,
        registers: Option<Registers>,
        frames: &[Frame],
    ) -> bool {
        let innermost = frames.iter().find_map(|frame| match frame {
            Frame::Address(address) => Some(address.wrapping_sub(1)),
            _ => None,
        });
        let pc = registers.map(|at| at.pc).or(innermost);
        let file = pc.and_then(|pc| self.spaces.file_at(pid, pc)).and_then(Path::file_name);
        file.is_some_and(|name| name == env::PRELOAD_LIBRARY || name == env::AGENT_LIBRARY)
    }

    /// Puts Python's frames in.
    pub(super) fn with_python(
        &mut self,
        pid: u32,
        frames: Vec<Frame>,
        end: StackEnd,
        python: Option<PyStack>,
    ) -> (Vec<Frame>, StackEnd) {
        let Some(python) = python else { return (frames, end) };
        let whole = end == StackEnd::Whole;
        // Python's outermost frame is as good an end as the C library's.
        let end = if python.cut { end } else { StackEnd::Whole };
        let named = python.frames.into_iter().map(|f| (Frame::Python(f.named), f.entry));
        let is_loop = |frame: &Frame| matches!(frame, Frame::Address(address) if self.pythons.is_loop(pid, *address));
        (merge(frames, named, whole, python.cut, is_loop), end)
    }

    /// Whether a thread that waits does so for Python's lock, by the address that it waits
    /// at: the interpreter's functions that take it have no names where it is stripped.
    pub(super) fn is_at_lock(&self, pid: u32, registers: Option<Registers>) -> bool {
        registers.is_some_and(|at| self.pythons.is_lock(pid, at.argument))
    }

    /// Reads the modules of frames that the kernel found.
    pub(super) fn report_modules(&mut self, pid: u32, frames: &[Frame]) {
        for frame in frames {
            if let Frame::Address(address) = frame {
                self.spaces.row_at(pid, address.wrapping_sub(1));
            }
        }
    }
}
