//! Measures the images of annotations on devices, as torch.profiler writes them. A range has one
//! image on each stream, which lasts from the range's first kernel on the stream to its last, gaps
//! included.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_trace::model::{DeviceSpan, DeviceSpanKind, NameId};

use super::effects::{DeviceImage, ImagesByName};

/// Returns the images by name, with the work that belongs to each.
///
/// A piece of work belongs to the shortest image that overlaps it on its stream.
pub(super) fn images(rank: &RankTrace) -> ImagesByName {
    let mut images: Vec<&DeviceSpan> =
        rank.device_spans.iter().filter(|span| span.kind == DeviceSpanKind::Annotation).collect();
    let mut by_name: FxHashMap<NameId, DeviceImage> = FxHashMap::default();
    for image in &images {
        by_name.entry(image.name).or_default().times_ns.push(image.duration_ns);
    }
    images.sort_by_key(|image| image.start_ns);
    let mut streams: FxHashMap<(u32, u32, u64), Vec<&DeviceSpan>> = FxHashMap::default();
    for image in images {
        if let Some(stream) = image.stream {
            streams.entry((image.process, image.device, stream)).or_default().push(image);
        }
    }
    let mut sweeps: FxHashMap<(u32, u32, u64), ImageSweep> =
        streams.iter().map(|(key, images)| (*key, ImageSweep::of(images))).collect();
    for work in &rank.work {
        let stream = rank.stream(work);
        let sweep = sweeps.get_mut(&(stream.process, stream.device, stream.stream));
        if let Some(name) = sweep.and_then(|s| s.shortest(work.start_ns, work.end_ns())) {
            let image = by_name.entry(name).or_default();
            image.kernels += 1;
            image.kernel_ns += work.duration_ns;
        }
    }
    let mut named = ImagesByName::default();
    for (name, image) in by_name {
        named.entry(rank.name(name).to_owned()).or_default().add(image);
    }
    named
}

/// The images of a stream, while they are swept in order of the work's starts.
struct ImageSweep<'r> {
    images: &'r [&'r DeviceSpan],
    next: usize,
    open: Vec<&'r DeviceSpan>,
}

impl<'r> ImageSweep<'r> {
    fn of(images: &'r [&'r DeviceSpan]) -> ImageSweep<'r> {
        ImageSweep { images, next: 0, open: Vec::new() }
    }

    /// Returns the name of the shortest image that overlaps an interval. Calls must be in order of
    /// the intervals' starts.
    fn shortest(&mut self, start_ns: u64, end_ns: u64) -> Option<NameId> {
        while let Some(image) = self.images.get(self.next).filter(|i| i.start_ns < end_ns) {
            self.open.push(image);
            self.next += 1;
        }
        let end = |image: &DeviceSpan| image.start_ns.saturating_add(image.duration_ns);
        self.open.retain(|image| end(image) > start_ns);
        let overlaps = |image: &&&DeviceSpan| image.start_ns < end_ns.max(start_ns + 1);
        let shortest = self.open.iter().filter(overlaps).min_by_key(|image| image.duration_ns);
        shortest.map(|image| image.name)
    }
}
