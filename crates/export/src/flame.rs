//! Flame graphs: one self-contained HTML page of a run, or of what changed
//! between two.
//!
//! Everything is aggregated here, over the whole of what was asked for, before
//! the page filters anything; only then are subtrees grouped that matter little
//! in every measure, and the page says how many.

mod device;
mod heap;
mod labels;
mod profile;
mod samples;
mod spans;
mod tree;

use serde_json::json;
use tprof_trace::RunDir;

use crate::page::{Page, Payload, run_title};
use crate::{ExportError, Options, Part, Selection, Written};
pub(crate) use device::copy_name;
pub(crate) use labels::Labels;
use profile::Profile;
pub(crate) use samples::waiting_for;
pub(crate) use tree::{FrameKind, FrameTable};

/// Writes the page: `flame.html`, unless the options say otherwise.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("flame")?;
    let path = crate::page::path(run, options, "flame.html")?;
    let mut payload = Payload::default();
    let mut written = collect(run, options, &mut payload)?;
    let page = Page {
        title: &format!("{} – flame graph – tprof", run_title(run)),
        body: include_str!("flame/flame.html"),
        style: include_str!("flame/flame.css"),
        scripts: &[
            include_str!("flame/model.js"),
            include_str!("flame/view.js"),
            include_str!("flame/main.js"),
        ],
    };
    written.paths.extend(page.save(&path, &payload)?);
    Ok(written)
}

fn collect(
    run: &RunDir,
    options: &Options<'_>,
    payload: &mut Payload,
) -> Result<Written, ExportError> {
    let compared = options.against.is_some();
    let mut written = Written::default();
    let mut table = FrameTable::default();
    let mut profiles = Profiles::new(if compared { 2 } else { 1 });
    for (side, run) in [Some(run), options.against].into_iter().flatten().enumerate() {
        profiles.set_side(side);
        let selection = Selection::new(run, &options.slice, options.symbols)?;
        for file in &selection.files {
            let part = selection.open(file)?;
            let problems = part.trace.problems().iter().map(|problem| problem.what.clone());
            written.notes.extend(problems);
            let mut labels = Labels::new(&part, compared, &mut table);
            profiles.file(&part, &mut written, &mut labels, &mut table);
        }
    }
    let profiles = profiles.all();
    if profiles.iter().all(Profile::is_empty) {
        written.notes.push("nothing was recorded that a flame graph could show".to_owned());
    }
    let about: Vec<_> =
        profiles.into_iter().map(|profile| profile.pack(&mut table, payload)).collect();
    payload.set("profiles", about);
    let kinds: Vec<u8> = table.kinds.iter().map(|kind| *kind as u8).collect();
    payload.set("frames", json!({ "names": table.names, "kinds": kinds, "places": table.places }));
    payload.set("run", run_title(run));
    payload.set("before", options.against.map(run_title));
    payload.set("notes", crate::page::notes(&options.slice, &written));
    Ok(written)
}

/// The profiles of a page.
struct Profiles {
    gpu: Profile,
    gpu_stacks: Profile,
    host: Profile,
    cpu: Profile,
    heap: Profile,
    device_memory: Profile,
}

impl Profiles {
    fn new(sides: usize) -> Profiles {
        let profile =
            |key, label, measures, empty| Profile::new(key, label, measures, empty, sides);
        Profiles {
            gpu: profile(
                "gpu",
                "GPU by range and operator",
                &device::TIME_MEASURES,
                "No kernel or copy was recorded. They come from runs on a GPU and from imported traces.",
            ),
            gpu_stacks: profile(
                "gpuStacks",
                "GPU by call stack",
                &device::TIME_MEASURES,
                "No launch was recorded with its call stack.",
            ),
            host: profile(
                "host",
                "Host by range and operator",
                &spans::MEASURES,
                "No span was recorded: no operator, NVTX range or CUDA call.",
            ),
            cpu: profile("cpu", "CPU by call stack", &samples::MEASURES, "No thread was sampled."),
            heap: profile(
                "heap",
                "Host memory by call stack",
                &heap::MEASURES,
                "No allocation was recorded. `tprof run --mem sampled` (or exact) records them.",
            ),
            device_memory: profile(
                "deviceMemory",
                "Device memory by range and operator",
                &device::MEMORY_MEASURES,
                "No allocation of device memory was recorded.",
            ),
        }
    }

    fn set_side(&mut self, side: usize) {
        for profile in [
            &mut self.gpu,
            &mut self.gpu_stacks,
            &mut self.host,
            &mut self.cpu,
            &mut self.heap,
            &mut self.device_memory,
        ] {
            profile.set_side(side);
        }
    }

    fn file(
        &mut self,
        part: &Part<'_>,
        written: &mut Written,
        labels: &mut Labels<'_>,
        table: &mut FrameTable,
    ) {
        heap::collect(part, written, labels, table, &mut self.heap);
        samples::collect(part, written, labels, table, &mut self.cpu);
        let places = spans::collect(part, written, labels, table, &mut self.host);
        let gpu = [&mut self.gpu, &mut self.gpu_stacks];
        device::collect(part, written, labels, table, &self.host, &places, gpu);
        device::memory(labels, table, &self.host, &places, &mut self.device_memory);
    }

    fn all(self) -> Vec<Profile> {
        vec![self.gpu, self.gpu_stacks, self.host, self.cpu, self.heap, self.device_memory]
    }
}
