//! `doctor --run-kernel`: runs a kernel on each device under `tprof run`, and compares the kernels
//! and copies that ran with those that were recorded.

use super::check::{Check, Verdict};
use super::gpu;
use super::kernel::{COPY_BYTES, DeviceRun, KERNEL, KernelRuns, LAUNCHES, NUMBERS};
use crate::launch::libraries::LIBRARY_DIR;
use crate::runs::scratch::Scratch;
use crate::settings::CONFIG_FILE;
use std::io;
use std::path::Path;
use std::process::Command;
use tprof_facts::units;
use tprof_trace::model::{CopyKind, Kernel, MemoryCopy};
use tprof_trace::{RunDir, TraceFile, TraceRow};
use tprof_ui::errors::reason;
use tprof_wire::env;

/// Name of the hidden command that is recorded.
pub const COMMAND: &str = "__run-kernel";
const NAME: &str = "kernel";

/// Returns one check per device, or one check with the reason if there are no devices.
pub fn checks() -> Vec<Check> {
    if gpu::load(Path::new("libcuda.so.1")).is_none() {
        return vec![not_run("skipped: no NVIDIA driver (the loader finds no libcuda.so.1)")];
    }
    try_it().unwrap_or_else(|why| vec![not_run(why)])
}

fn not_run(why: impl Into<String>) -> Check {
    Check::new(NAME, Verdict::Part, why)
}

fn try_it() -> Result<Vec<Check>, String> {
    let scratch = Scratch::new("doctor").map_err(|e| reason(&e))?;
    let run = scratch.path().join("run");
    let ran = record(scratch.path(), &run).map_err(|e| reason(&e))??;
    if let Some(why) = ran.failed {
        return Err(why);
    }
    if ran.devices.is_empty() {
        return Err("skipped: the NVIDIA driver has no device".to_owned());
    }
    let recorded = Recorded::read(&run)?;
    let check = |(at, device): (usize, &DeviceRun)| recorded.compare(at as u32, device);
    Ok(ran.devices.iter().enumerate().map(check).collect())
}

/// Runs the test program under `tprof run`, and returns the results that it printed, or why it
/// printed none.
fn record(scratch: &Path, run: &Path) -> io::Result<Result<KernelRuns, String>> {
    let tprof = std::env::current_exe()?;
    // The configuration is empty, because this tests the machine and not the user's settings.
    let config = scratch.join("tprof.toml");
    std::fs::write(&config, "")?;
    let mut command = Command::new(&tprof);
    command.args(["run", "--quiet", "--activities", "gpu", "-o"]).arg(run);
    command.arg("--").arg(&tprof).arg(COMMAND);
    for (name, _) in std::env::vars_os() {
        let is_setting = name.as_encoded_bytes().starts_with(b"TPROF_");
        if is_setting && name != env::CUPTI && name != LIBRARY_DIR {
            command.env_remove(name);
        }
    }
    let output = command.env(CONFIG_FILE, config).output()?;
    Ok(serde_json::from_slice(&output.stdout).map_err(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().next().unwrap_or("no output");
        format!("the test program ended early ({}): {first}", output.status)
    }))
}

/// The data that a run contains.
struct Recorded {
    /// Device of each kernel named [`KERNEL`].
    kernels: Vec<u32>,
    /// Device and direction of each copy of [`COPY_BYTES`].
    copies: Vec<(u32, CopyKind)>,
    /// Why something is missing in the run.
    why: Option<String>,
}

impl Recorded {
    fn read(run: &Path) -> Result<Recorded, String> {
        let run = RunDir::open(run).map_err(|e| e.to_string())?;
        let mut recorded = Recorded { kernels: Vec::new(), copies: Vec::new(), why: None };
        let blind = run.infos().iter().flat_map(|info| &info.completeness.blind);
        recorded.why = blind.map(|blind| format!("{}: {}", blind.what, blind.why)).next();
        for file in run.files() {
            let file = TraceFile::open(&file.path).map_err(|e| e.to_string())?;
            let kernels = rows::<Kernel>(&file)?.into_iter();
            let named = kernels.filter(|kernel| file.name(kernel.name) == KERNEL);
            recorded.kernels.extend(named.map(|kernel| kernel.device));
            let copies = rows::<MemoryCopy>(&file)?.into_iter();
            let sized = copies.filter(|copy| copy.bytes == Some(COPY_BYTES));
            recorded.copies.extend(sized.map(|copy| (copy.device, copy.kind)));
        }
        Ok(recorded)
    }

    /// Compares the results of a device with its recorded data.
    fn compare(&self, device: u32, ran: &DeviceRun) -> Check {
        let title = match ran.name.as_str() {
            "" => format!("device {device}"),
            name => format!("device {device}, {name}"),
        };
        let wrong = match &ran.wrong {
            Ok(wrong) => *wrong,
            Err(why) => return not_run(format!("{title}: {why}")),
        };
        let kernels = self.kernels.iter().filter(|of| **of == device).count();
        let copies = |kind| self.copies.iter().filter(|copy| **copy == (device, kind)).count();
        let (into, out) = (copies(CopyKind::HostToDevice), copies(CopyKind::DeviceToHost));
        let is_complete = (kernels, into, out) == (LAUNCHES as usize, 1, 1);
        let values = match wrong {
            0 => format!("all {} values are correct", units::count(NUMBERS.into())),
            wrong => format!(
                "{} of {} values are wrong",
                units::count(wrong.into()),
                units::count(NUMBERS.into())
            ),
        };
        let size = units::bytes(COPY_BYTES);
        let found = format!(
            "{title}: {values}; recorded {kernels} of {LAUNCHES} kernels, {into} of 1 copy in \
             and {out} of 1 out of {size}"
        );
        let verdict = if is_complete && wrong == 0 { Verdict::Ok } else { Verdict::Part };
        let check = Check::new(NAME, verdict, found);
        match (&self.why, is_complete) {
            (Some(why), false) => {
                check.hint(format!("fix the cause of the missing records: {why}"))
            }
            _ => check,
        }
    }
}

fn rows<R: TraceRow>(file: &TraceFile) -> Result<Vec<R>, String> {
    let (rows, problems) = file.rows();
    match problems.first() {
        Some(problem) => Err(format!("the recording is damaged: {}", problem.what)),
        None => Ok(rows),
    }
}
