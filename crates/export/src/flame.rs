//! Exports flame graphs: one self-contained HTML page of a run, or of the changes between two runs.
//!
//! All requested data is aggregated here, before the page filters anything. Subtrees that matter
//! little in every measure are then grouped, and the page says how many.

mod device;
mod heap;
mod json;
mod labels;
mod profile;
mod samples;
mod spans;
mod stalls;
mod tree;

use serde_json::json;
use tprof_facts::labels::Ids;
use tprof_trace::RunDir;

use crate::output::Output;
use crate::page::{Page, Payload, run_title};
use crate::{ExportError, OpenRank, Options, Selection, Written, paths};
pub(crate) use labels::Labels;
use profile::Profile;
pub(crate) use samples::waiting_for;
pub(crate) use tree::{FrameKind, FrameOwner, FrameTable};

/// Writes the page, `flame.html`, or its trees as JSON, `flame.json`, unless the
/// options name another file.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("flame")?;
    let name = if options.json { "flame.json" } else { "flame.html" };
    let path = crate::page::path(run, options, name)?;
    let mut written = Written::default();
    let mut table = FrameTable::default();
    let profiles = collect(run, options, &mut table, &mut written)?;
    if options.json {
        let head = json::Head {
            run: run_title(run),
            before: options.against.map(run_title),
            notes: crate::page::notes(&options.slice, &written),
        };
        paths::parent(&path)?;
        let mut output = Output::create(&path)?;
        json::write(&head, &profiles, &table, &mut output)
            .map_err(|source| ExportError::Write { path: path.clone(), source })?;
        written.paths.extend(output.keep()?);
        return Ok(written);
    }
    let mut payload = Payload::default();
    pack(run, options, profiles, table, &written, &mut payload);
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

/// Reads the recorded data and adds it to trees.
fn collect(
    run: &RunDir,
    options: &Options<'_>,
    table: &mut FrameTable,
    written: &mut Written,
) -> Result<Vec<Profile>, ExportError> {
    // Ids differ from run to run. If runs are compared, equal frames must have equal names, so omit
    // the ids.
    let (sides, ids) = match options.against {
        Some(_) => (2, Ids::LeftOut),
        None => (1, Ids::Shown),
    };
    let mut profiles = Profiles::new(sides);
    for (side, run) in [Some(run), options.against].into_iter().flatten().enumerate() {
        profiles.set_side(side);
        let selection = Selection::new(run, &options.slice, options.symbols)?;
        for file in &selection.files {
            let part = written.open_spans(&selection, file)?;
            let mut labels = Labels::new(&part, ids, table);
            profiles.file(&part, written, &mut labels, table);
        }
    }
    let profiles = profiles.all();
    if profiles.iter().all(Profile::is_empty) {
        written.notes.push("nothing was recorded for a flame graph".to_owned());
    }
    Ok(profiles)
}

/// Packs the trees into the payload of the page.
fn pack(
    run: &RunDir,
    options: &Options<'_>,
    profiles: Vec<Profile>,
    mut table: FrameTable,
    written: &Written,
    payload: &mut Payload,
) {
    let about: Vec<_> =
        profiles.into_iter().map(|profile| profile.pack(&mut table, payload)).collect();
    payload.set("profiles", about);
    let kinds: Vec<u8> = table.kinds.iter().map(|kind| *kind as u8).collect();
    let owners: Vec<u8> = table.owners.iter().map(|owner| *owner as u8).collect();
    payload.set(
        "frames",
        json!({
            "names": table.names, "kinds": kinds, "places": table.places, "owners": owners,
        }),
    );
    payload.set("run", run_title(run));
    payload.set("before", options.against.map(run_title));
    payload.set("notes", crate::page::notes(&options.slice, written));
}

/// The profiles of a page.
struct Profiles {
    gpu: Profile,
    gpu_stacks: Profile,
    host: Profile,
    cpu: Profile,
    heap: Profile,
    device_memory: Profile,
    stalls: Profile,
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
            stalls: profile(
                "stalls",
                "GPU stalls by kernel",
                &stalls::MEASURES,
                "No GPU instruction was sampled. `tprof run --gpu-stalls` samples them.",
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
            &mut self.stalls,
        ] {
            profile.set_side(side);
        }
    }

    fn file(
        &mut self,
        part: &OpenRank<'_>,
        written: &mut Written,
        labels: &mut Labels<'_>,
        table: &mut FrameTable,
    ) {
        heap::collect(part, written, labels, table, &mut self.heap);
        samples::collect(part, written, labels, table, &mut self.cpu);
        let places = spans::collect(part, written, labels, table, &mut self.host);
        let gpu = [&mut self.gpu, &mut self.gpu_stacks];
        device::collect(part, written, labels, table, &self.host, &places, gpu);
        stalls::collect(part, written, labels, table, &mut self.stalls);
        device::memory(labels, table, &self.host, &places, &mut self.device_memory);
    }

    fn all(self) -> Vec<Profile> {
        vec![
            self.gpu,
            self.gpu_stacks,
            self.host,
            self.cpu,
            self.heap,
            self.device_memory,
            self.stalls,
        ]
    }
}
