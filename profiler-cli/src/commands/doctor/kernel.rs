//! The program that `tprof doctor --run-kernel` records.
//!
//! For each device, the program copies numbers to the device, changes them there with three
//! launches of a kernel, copies them back and checks them. It prints the results as one line of
//! JSON. `cudarc` loads the driver at run time, so the build needs no CUDA.
#![allow(unsafe_code)] // kernel launches

use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Name of the kernel.
pub const KERNEL: &str = "tprof_check";
/// Number of launches on each device.
pub const LAUNCHES: u32 = 3;
/// Number of values to copy in and out. It is a prime, so that no other copy has the same size by
/// chance.
pub const NUMBERS: u32 = 262_147;
/// Size of a copy in bytes.
pub const COPY_BYTES: u64 = NUMBERS as u64 * 4;

/// The kernel computes `numbers[i] = numbers[i] * 3 + i`. It is PTX, which every driver compiles
/// for its device.
const PTX: &str = "\
.version 6.4
.target sm_50
.address_size 64
.visible .entry tprof_check(.param .u64 numbers, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %r<7>;
    .reg .b64 %a<4>;
    ld.param.u64 %a1, [numbers];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %outside, %r5, %r1;
    @%outside bra done;
    cvta.to.global.u64 %a2, %a1;
    mul.wide.u32 %a3, %r5, 4;
    add.s64 %a2, %a2, %a3;
    ld.global.u32 %r6, [%a2];
    mad.lo.s32 %r6, %r6, 3, %r5;
    st.global.u32 [%a2], %r6;
done:
    ret;
}
";

/// Results of the kernel on all devices.
#[derive(Serialize, Deserialize)]
pub struct KernelRuns {
    /// Why the devices could not be listed.
    pub failed: Option<String>,
    /// Results by device, in CUDA's order.
    pub devices: Vec<DeviceRun>,
}

/// Results of the kernel on one device.
#[derive(Serialize, Deserialize)]
pub struct DeviceRun {
    /// Name of the device; empty if the driver reports none.
    pub name: String,
    /// Number of wrong values, or the error that occurred before they could be checked.
    pub wrong: Result<u32, String>,
}

/// Runs the kernel on each device. Returns a failure status if a value is wrong.
pub fn run() -> anyhow::Result<ExitCode> {
    // cudarc panics if the driver or one of its functions is missing. The panic is caught and
    // becomes a result, so its message must not be printed.
    std::panic::set_hook(Box::new(|_| {}));
    let ran = match caught(CudaContext::device_count) {
        Ok(count) => {
            KernelRuns { failed: None, devices: (0..count as usize).map(on_device).collect() }
        }
        Err(why) => KernelRuns { failed: Some(why), devices: Vec::new() },
    };
    let right = ran.failed.is_none() && ran.devices.iter().all(|device| device.wrong == Ok(0));
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&ran)?)?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn on_device(ordinal: usize) -> DeviceRun {
    let mut name = String::new();
    let wrong = caught(|| {
        let context = CudaContext::new(ordinal)?;
        name = context.name().unwrap_or_default();
        // SAFETY: all work of this context is on its default stream, in order, so no stream has to
        // wait for an event of another one.
        unsafe { context.disable_event_tracking() };
        let kernel = context.load_module(Ptx::from_src(PTX))?.load_function(KERNEL)?;
        let stream = context.default_stream();
        let given: Vec<u32> = (0..NUMBERS).map(|at| at ^ 0x5a5a_5a5a).collect();
        let mut numbers = stream.clone_htod(&given)?;
        for _ in 0..LAUNCHES {
            let mut launch = stream.launch_builder(&kernel);
            launch.arg(&mut numbers).arg(&NUMBERS);
            // SAFETY: the two arguments have the types that `PTX` declares, a pointer and a `u32`;
            // the kernel writes only to the first `NUMBERS` elements, which `numbers` has.
            unsafe { launch.launch(LaunchConfig::for_num_elems(NUMBERS)) }?;
        }
        let got = stream.clone_dtoh(&numbers)?;
        stream.synchronize()?;
        Ok(given
            .iter()
            .zip(&got)
            .zip(0..)
            .filter(|((given, got), at)| expected(**given, *at) != **got)
            .count() as u32)
    });
    DeviceRun { name, wrong }
}

/// Returns the value that the launches should compute from `given` at index `at`.
fn expected(given: u32, at: u32) -> u32 {
    (0..LAUNCHES).fold(given, |number, _| number.wrapping_mul(3).wrapping_add(at))
}

fn caught<T>(run: impl FnOnce() -> Result<T, DriverError>) -> Result<T, String> {
    let run = || run().map_err(|error| error.to_string());
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("cudarc gave up").to_owned())
        }
    }
}
