//! DeviceAllocations: device memory is taken from the driver and given back in
//! the middle of steps.

use crate::findings::absent::Thing;
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::scene::calls::is_device_allocation;
use crate::findings::verdict::Verdict;
use crate::findings::words::{time, times};

/// Calls like `cudaMalloc` and `cudaFree` within steps.
pub(super) struct DeviceAllocations;

const CALL: Thing = Thing::of_main_threads("call such as cudaMalloc or cudaFree");

impl Rule for DeviceAllocations {
    fn name(&self) -> &'static str {
        "DeviceAllocations"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if let Some(verdict) = scene.no_calls() {
            return verdict;
        }
        let calls = scene.calls_named(is_device_allocation);
        if calls.is_empty() {
            return Verdict::none(scene.none(&CALL, scene.has_calls(is_device_allocation)));
        }
        let cover = scene.cover_of_calls(&calls);
        let start = match scene.steps {
            0 => " No steps were recorded, so this may be the start of the job.",
            _ => "",
        };
        let seen = format!(
            "{} such as cudaMalloc and cudaFree block host threads for {}; cudaFree also waits for \
             the device.{start}",
            times(scene, calls.len(), "calls"),
            time(scene, cover.length()),
        );
        Verdict::Found(vec![
            scene
                .finding("the driver allocates and frees device memory")
                .seen(seen)
                .advice(
                    "Keep buffers over steps or take them from a caching or stream-ordered pool \
                     (cudaMallocAsync). If PyTorch's cache is emptied, leave out empty_cache() and \
                     free memory for it.",
                )
                // The threads have still their other work to do.
                .bound(cover.length())
                .at(scene.call_places(&calls)),
        ])
    }
}
