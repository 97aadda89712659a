//! The messages of the process that samples, on its standard output: frames of a length, a kind and
//! that many bytes. The collector believes no length above [`MOST`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// Longest frame, bytes. A frame has [`PER_FRAME`] samples at most.
const MOST: u32 = 1 << 20;
/// Most samples in a frame.
const PER_FRAME: usize = 1024;
/// The kind of a frame with news as JSON.
const NEWS: u8 = b'n';
/// The kind of a frame with samples.
const SAMPLES: u8 = b's';

/// What is new about a device, or about all of them if `device` is empty.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceNews {
    /// UUID of the device, as `GPU-…`.
    pub device: String,
    /// CUDA's number of the device in the order of the bus.
    pub index: u32,
    /// Why it isn't sampled, or no longer is; `None` while it is.
    pub why_not: Option<String>,
    /// CUPTI's name of the chip.
    pub chip: String,
    /// Version of CUPTI, as `cuptiGetVersion` returns it.
    pub cupti: u32,
    /// The sampled counters in the order of a sample's values, each with CUPTI's metric.
    pub metrics: Vec<(String, String)>,
    /// The counters that are not sampled, each with the reason.
    pub missing: BTreeMap<String, String>,
    /// Bytes of the buffer in which the device collects.
    pub buffer_bytes: u64,
    /// How often that buffer was full.
    pub overflows: u64,
    /// Longest time between two readings of the run's clock with one of CUPTI's clock between them,
    /// ns.
    pub clock_width_ns: u64,
    /// Samples without a value, or whose times could not be.
    pub unusable: u64,
}

/// A sample of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSample {
    /// Beginning, on CLOCK_MONOTONIC, ns.
    pub start_ns: u64,
    /// End, on the same clock, ns.
    pub end_ns: u64,
    /// A value for each sampled counter; not a number if there is none.
    pub values: Vec<f64>,
}

/// Samples of one device, in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleBatch {
    /// CUDA's number of the device in the order of the bus.
    pub index: u32,
    /// The samples. All have as many values.
    pub samples: Vec<MetricsSample>,
}

/// A message of the process that samples.
#[derive(Clone, Debug, PartialEq)]
pub enum SamplerFrame {
    /// What is new about a device.
    News(DeviceNews),
    /// Samples of one device.
    Samples(SampleBatch),
}

fn send(to: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(bytes.len() + 5);
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.push(kind);
    frame.extend(bytes);
    to.write_all(&frame)
}

/// Sends news of a device.
pub fn send_news(to: &mut impl Write, news: &DeviceNews) -> io::Result<()> {
    send(to, NEWS, &serde_json::to_vec(news)?)
}

/// Sends samples of a device, in as many frames as they need.
pub fn send_samples(to: &mut impl Write, index: u32, samples: &[MetricsSample]) -> io::Result<()> {
    for part in samples.chunks(PER_FRAME) {
        let width = part.first().map_or(0, |sample| sample.values.len());
        let mut bytes = [index, width as u32, part.len() as u32].map(u32::to_le_bytes).concat();
        for sample in part {
            bytes.extend([sample.start_ns, sample.end_ns].map(u64::to_le_bytes).concat());
            bytes.extend(sample.values.iter().flat_map(|value| value.to_le_bytes()));
        }
        send(to, SAMPLES, &bytes)?;
    }
    Ok(())
}

/// Reads the next message; `None` if there is none any more, or if it makes no sense.
pub fn receive(from: &mut impl Read) -> Option<SamplerFrame> {
    let mut head = [0; 5];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if length > MOST {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes).ok()?;
    match head[4] {
        NEWS => serde_json::from_slice(&bytes).ok().map(SamplerFrame::News),
        SAMPLES => batch(&bytes).map(SamplerFrame::Samples),
        _ => None,
    }
}

fn batch(bytes: &[u8]) -> Option<SampleBatch> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (index, width, count) = (word(0)?, word(4)? as usize, word(8)? as usize);
    let each = width.checked_mul(8)?.checked_add(16)?;
    let body = bytes.get(12..)?;
    if body.len() != each.checked_mul(count)? {
        return None;
    }
    let sample = |bytes: &[u8]| {
        let mut words = bytes.as_chunks::<8>().0.iter();
        let mut time = || words.next().map(|word| u64::from_le_bytes(*word));
        let (start_ns, end_ns) = (time()?, time()?);
        let values = words.map(|word| f64::from_le_bytes(*word)).collect();
        Some(MetricsSample { start_ns, end_ns, values })
    };
    let samples = body.chunks_exact(each).map(sample).collect::<Option<_>>()?;
    Some(SampleBatch { index, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let sample =
            |at: u64| MetricsSample { start_ns: at, end_ns: at + 1, values: vec![0.5, at as f64] };
        let samples: Vec<_> = (0..PER_FRAME as u64 + 3).map(sample).collect();
        let news = DeviceNews { device: "GPU-1".to_owned(), ..DeviceNews::default() };
        let mut bytes = Vec::new();
        send_news(&mut bytes, &news).unwrap();
        send_samples(&mut bytes, 7, &samples).unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(receive(&mut from), Some(SamplerFrame::News(news)));
        let mut all = Vec::new();
        while let Some(SamplerFrame::Samples(batch)) = receive(&mut from) {
            assert_eq!(batch.index, 7);
            all.extend(batch.samples);
        }
        assert_eq!(all, samples);
    }

    #[test]
    fn frames_that_make_no_sense_are_no_messages() {
        let frame = |length: u32, kind: u8, rest: &[u8]| {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.push(kind);
            bytes.extend(rest);
            receive(&mut bytes.as_slice())
        };
        assert_eq!(frame(u32::MAX, SAMPLES, &[]), None);
        assert_eq!(frame(12, SAMPLES, &[255; 12]), None);
        assert_eq!(frame(3, NEWS, b"{}]"), None);
        assert_eq!(frame(0, b'?', &[]), None);
    }
}
