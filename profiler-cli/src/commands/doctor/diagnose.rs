//! Runs the checks, and prints them.

use super::check::{Check, Verdict};
use super::{gpu, machine, peaks, program, run_kernel};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use tprof_ui::paint;

const EXIT_STATUS: &str = "\
The exit status is 0 if tprof can record here, otherwise 1. With --run-kernel it
is also 1 if there is no GPU, or if a kernel's result or recording is wrong.";

/// Arguments of `tprof doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXIT_STATUS)]
pub struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Record a test kernel on each GPU, and check its result and its recording
    #[arg(long)]
    pub run_kernel: bool,
    /// Measure the peak rates of this machine's processors for `tprof report --peaks`:
    /// fp32, fp64, memory (takes 3 s; run nothing else meanwhile)
    #[arg(long)]
    pub peaks: bool,
    /// Command whose program and libraries to check
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Version of the output of `doctor --json`.
const DOCTOR_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    version: u32,
    tprof: &'static str,
    /// Whether tprof can record here, or record the given command.
    works: bool,
    machine: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<Check>>,
    /// Results of `--run-kernel`: for each device, what ran and what was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_kernel: Option<Vec<Check>>,
    /// Results of `--peaks`: peak rates of the processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    peaks: Option<peaks::CpuPeaks>,
}

impl Report {
    /// Whether all requested kernels ran and were recorded correctly.
    fn kernels_agree(&self) -> bool {
        self.run_kernel.iter().flatten().all(|check| check.verdict == Verdict::Ok)
    }
}

/// Prints the checks. Returns a failure status if tprof could record nothing, or if `--run-kernel`
/// did not show for every device that the recording is correct.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut machine = machine::checks();
    machine.extend(gpu::machine());
    let command = match args.command.first() {
        Some(word) => Some(program::checks(word)?),
        None => None,
    };
    let all = machine.iter().chain(command.iter().flatten());
    let works = all.clone().all(|check| check.verdict != Verdict::No);
    let report = Report {
        version: DOCTOR_VERSION,
        tprof: env!("CARGO_PKG_VERSION"),
        works,
        machine,
        command,
        run_kernel: args.run_kernel.then(run_kernel::checks),
        peaks: args.peaks.then(peaks::measure).transpose()?,
    };
    let text =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { page(&report) };
    io::stdout().write_all(text.as_bytes())?;
    let passed = report.works && report.kernels_agree();
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn page(report: &Report) -> String {
    let mut text = format!("tprof {} on this machine\n", report.tprof);
    report.machine.iter().for_each(|check| line(check, &mut text));
    if let Some(checks) = &report.command {
        text += "\ncommand\n";
        checks.iter().for_each(|check| line(check, &mut text));
    }
    if let Some(checks) = &report.run_kernel {
        text += "\na kernel on each GPU\n";
        checks.iter().for_each(|check| line(check, &mut text));
    }
    if let Some(peaks) = &report.peaks {
        text += &peaks::text(peaks);
    }
    if !report.kernels_agree() {
        text += "\nGPU recording is not verified here.\n";
    }
    text += match (report.works, &report.command) {
        (true, None) => "\ntprof can record here. Next: tprof run -- COMMAND\n",
        (true, Some(_)) => "\ntprof can record this command.\n",
        (false, None) => "\ntprof cannot record here; fix the lines marked `no`.\n",
        (false, Some(_)) => "\nThe command would run without being recorded.\n",
    };
    text
}

fn line(check: &Check, text: &mut String) {
    let word = match check.verdict {
        Verdict::Ok => "ok",
        Verdict::Part => "part",
        Verdict::No => "no",
        Verdict::Note => "note",
    };
    let word = paint::verdict(&format!("{word:>4}"));
    *text += &format!("  {word}  {:<11}  {}\n", check.name, check.found);
    if let Some(hint) = &check.hint {
        *text += &format!("        {:<11}  try: {hint}\n", "");
    }
}
