//! Checks that the parameters of PM sampling have the offsets and sizes of CUPTI's headers.
//! `scripts/cuda/pm_sampling.py` compares the table with them.

use std::fmt::Write;
use tprof_cupti_sys::pm_sampling::*;

const TABLE: &str = include_str!("pm_sampling.txt");

fn rows<P: Params>(into: &mut String) {
    writeln!(into, "{} - {}", P::NAME, P::BYTES).unwrap();
    for (field, offset) in P::FIELDS.iter().filter(|(field, _)| *field != "unused") {
        writeln!(into, "{} {field} {offset}", P::NAME).unwrap();
    }
}

#[test]
fn fields_and_sizes_are_those_of_the_headers() {
    let mut all = String::new();
    rows::<ProfilerInitialize>(&mut all);
    rows::<GetChipName>(&mut all);
    rows::<GetCounterAvailability>(&mut all);
    rows::<HostInitialize>(&mut all);
    rows::<HostDeinitialize>(&mut all);
    rows::<ConfigAddMetrics>(&mut all);
    rows::<GetConfigImageSize>(&mut all);
    rows::<GetConfigImage>(&mut all);
    rows::<GetNumOfPasses>(&mut all);
    rows::<EvaluateToGpuValues>(&mut all);
    rows::<Enable>(&mut all);
    rows::<Disable>(&mut all);
    rows::<SetConfig>(&mut all);
    rows::<Start>(&mut all);
    rows::<Stop>(&mut all);
    rows::<DecodeData>(&mut all);
    rows::<GetCounterDataSize>(&mut all);
    rows::<CounterDataImageInitialize>(&mut all);
    rows::<GetCounterDataInfo>(&mut all);
    rows::<GetSampleInfo>(&mut all);
    let pinned: String = TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(all, pinned);
}
