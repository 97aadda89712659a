//! The devices, contexts and streams of work are found in whatever order their records arrive.

use super::*;

#[test]
fn a_process_lists_only_the_devices_that_it_uses() {
    let env = [("FAKE_CUDA_DEVICES", "8"), ("RANK", "5")];
    let (_scratch, ran) = need_some!(ran(13, &["6"], &env));
    let [device] = ran.file.devices() else { panic!("{:?}", ran.file.devices()) };
    assert_eq!(device.device, 5);
    assert!(rows::<Kernel>(&ran.file).iter().all(|row| row.device == 5));
    let uuids = |name: &str| ran.file.name(device.uuid).ends_with(name);
    assert!(uuids("05"), "{}", ran.file.name(device.uuid));
}

#[test]
fn a_device_that_cupti_did_not_describe_is_described_by_the_driver() {
    for major in [12, 13] {
        let env = [("FAKE_CUPTI_FAULTS", "devices"), ("FAKE_CUDA_DEVICES", "2")];
        let (_scratch, ran) = need_some!(ran(major, &["6"], &env));
        let [device] = ran.file.devices() else { panic!("{:?}", ran.file.devices()) };
        assert_eq!(ran.file.name(device.name), "Simulated GPU");
        assert_eq!((device.processors, device.compute_major), (Some(132), Some(9)));
        assert_eq!(device.memory_bytes, Some(80 << 30));
        // Properties that the driver did not report are unknown.
        let properties = ran.file.name(device.properties);
        assert!(!properties.contains("warpSize"), "{properties}");
        // The queries of tprof are not listed as calls of the job.
        let asked = of_kind(&ran.log, "driver call");
        assert!(asked.iter().any(|line| line["name"] == "cuDeviceGetUuid_v2"), "{asked:?}");
        let spans = rows::<Span>(&ran.file);
        assert_eq!(spans.iter().filter(|span| span.kind == SpanKind::Driver).count(), 0);
        assert_kernels(&ran);
    }
}

#[test]
fn streams_find_their_device_whenever_its_context_is_recorded() {
    let env = [("FAKE_CUPTI_FAULTS", "contexts"), ("FAKE_CUDA_DEVICES", "2"), ("RANK", "1")];
    let (_scratch, ran) = need_some!(ran(12, &["6", "overlap"], &env));
    let streams = ran.file.streams();
    assert_eq!(streams.len(), of_kind(&ran.log, "stream").len());
    assert!(streams.iter().all(|stream| stream.device == 1), "{streams:?}");
    let waits = rows::<Synchronization>(&ran.file);
    assert!(!waits.is_empty() && waits.iter().all(|wait| wait.device == Some(1)), "{waits:?}");
    assert_eq!(losses(&ran, "streams", ""), 0);
}

#[test]
fn device_waits_that_cupti_13_0_leaves_out_come_from_their_calls() {
    let of = |version: &str| -> Result<Vec<(SyncKind, u64, u64)>, String> {
        let (_scratch, ran) = ran(13, &["6"], &[("FAKE_CUPTI_VERSION", version)])?;
        let spans = rows::<Span>(&ran.file);
        let is_wait = |span: &&Span| ran.file.name(span.name) == "cudaDeviceSynchronize";
        let calls = spans.iter().filter(is_wait).map(|span| span.correlation.unwrap());
        let waits = rows::<Synchronization>(&ran.file);
        let of_device = waits.iter().filter(|wait| wait.kind == SyncKind::Context);
        let of_device: Vec<&Synchronization> = of_device.collect();
        assert!(of_device.iter().map(|wait| wait.correlation.unwrap()).eq(calls), "{version}");
        assert!(of_device.iter().all(|wait| wait.device == Some(0) && wait.context == 1));
        Ok(waits
            .iter()
            .map(|wait| (wait.kind, wait.context.into(), wait.device.unwrap().into()))
            .collect())
    };
    assert_eq!(need_some!(of("130000")), need_some!(of("130001")));
}
