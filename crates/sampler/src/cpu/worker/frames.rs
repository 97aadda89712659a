//! Builds the stack of a sample: the kernel's frames, then the user's frames from the unwound
//! stack, with Python's frames inserted.

use super::super::sample::Frame;
use super::super::unwind;
use super::Worker;
use crate::perf::record::{self, Registers};
use crate::python::{PyStack, merge};
use std::path::Path;
use tprof_wire::env;
use tprof_wire::record::StackEnd;

impl Worker {
    /// Returns the kernel's frames, followed by the user's frames.
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
                // The first address is where the thread was; one is added so that all look like
                // return addresses.
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

    /// Whether a thread ran code of tprof's library. Such time counts as overhead.
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

    /// Inserts Python's frames into a stack.
    pub(super) fn with_python(
        &mut self,
        pid: u32,
        frames: Vec<Frame>,
        end: StackEnd,
        python: Option<PyStack>,
    ) -> (Vec<Frame>, StackEnd) {
        let Some(python) = python else { return (frames, end) };
        let whole = end == StackEnd::Whole;
        // A stack counts as whole if its Python frames are complete, even if the walk over native
        // frames was cut.
        let end = if python.cut { end } else { StackEnd::Whole };
        let named = python.frames.into_iter().map(|f| (Frame::Python(f.named), f.entry));
        let is_loop = |frame: &Frame| matches!(frame, Frame::Address(address) if self.pythons.is_loop(pid, *address));
        (merge(frames, named, whole, python.cut, is_loop), end)
    }

    /// Whether a thread waits for the GIL, judged by the address that it waits at. The names of
    /// functions can't tell that, because those that take the GIL have none in a stripped
    /// interpreter.
    pub(super) fn is_at_lock(&self, pid: u32, registers: Option<Registers>) -> bool {
        registers.is_some_and(|at| self.pythons.is_lock(pid, at.argument))
    }

    /// Reports the modules of user frames that the kernel has unwound.
    pub(super) fn report_modules(&mut self, pid: u32, frames: &[Frame]) {
        for frame in frames {
            if let Frame::Address(address) = frame {
                self.spaces.row_at(pid, address.wrapping_sub(1));
            }
        }
    }
}
