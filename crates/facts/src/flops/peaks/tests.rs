//! Tests of the peaks of devices.

use super::devices::DEVICES;
use super::*;
use crate::flops::Family;

fn device(name: &str, bytes: u64) -> Option<&'static str> {
    Peaks::of(name, Some(bytes)).map(|peaks| peaks.device)
}

#[test]
fn devices_are_found_by_the_names_that_drivers_report() {
    for (name, bytes, wanted) in [
        ("Tesla V100-SXM2-32GB", 34_079_899_648, "V100 SXM2"),
        ("NVIDIA A100-SXM4-80GB", 84_990_623_744, "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", 84_990_623_744, "A100 80GB PCIe"),
        ("NVIDIA A100-PG509-200", 42_505_273_344, "A100 40GB"),
        ("A100-PCIE-40GB", 42_505_273_344, "A100 40GB PCIe"),
        ("NVIDIA H100 80GB HBM3", 85_000_000_000, "H100 SXM"),
        ("NVIDIA H100 PCIe", 85_000_000_000, "H100 PCIe"),
        ("NVIDIA H200", 150_000_000_000, "H200 SXM"),
        ("NVIDIA GH200 480GB", 102_000_000_000, "GH200 96GB"),
        ("NVIDIA GH200 144G HBM3e", 150_000_000_000, "GH200 144GB"),
        ("NVIDIA L40S", 48_000_000_000, "L40S"),
        ("NVIDIA GeForce RTX 4090", 25_000_000_000, "GeForce RTX 4090"),
        ("AMD Instinct MI250X", 68_000_000_000, "Instinct MI250X, one of two dies"),
        ("AMD Instinct MI300X", 205_000_000_000, "Instinct MI300X"),
    ] {
        assert_eq!(device(name, bytes), Some(wanted), "{name}");
    }
}

#[test]
fn the_documented_peaks_are_those_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let figure = |value: f64| if value > 0.0 { value.to_string() } else { "–".to_owned() };
    for row in DEVICES {
        let all =
            |values: &[f64]| values.iter().copied().map(figure).collect::<Vec<_>>().join(", ");
        let line = format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            row.device,
            figure(row.memory),
            figure(row.link),
            all(&row.vector),
            all(&row.matrix),
            all(&row.short[..2]),
            all(&row.short[2..]),
        );
        assert!(text.contains(&line), "{line}");
        assert!(text.contains(row.source), "{}", row.source);
    }
}

#[test]
fn other_devices_and_parts_of_devices_have_no_peaks() {
    for name in [
        "",
        "AMD Radeon Graphics",
        "NVIDIA A10G",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA H100",
    ] {
        assert_eq!(device(name, 42_000_000_000), None, "{name}");
    }
}

#[test]
fn products_use_matrix_units_and_other_work_uses_vector_units() {
    let peaks = Peaks::of("NVIDIA H200", None).unwrap();
    let of = |family, of, tf32| {
        let work = Work { family, flops: 1, needed: 1, read: None, written: None, of: Some(of) };
        peaks.compute(&work, tf32)
    };
    assert_eq!(of(Family::Gemm, ElementType::BFloat16, false), Some((989.4 * 1e12, "bf16")));
    assert_eq!(of(Family::Gemm, ElementType::Float32, false), Some((66.9 * 1e12, "fp32")));
    assert_eq!(of(Family::Gemm, ElementType::Float32, true), Some((494.7 * 1e12, "tf32")));
    assert_eq!(of(Family::Norm, ElementType::BFloat16, false), Some((66.9 * 1e12, "fp32")));
    assert_eq!(of(Family::Gemm, ElementType::Int64, false), None);
    let given = Peaks::parse("bf16=800T, memory=3.5T").unwrap();
    let both = peaks.with(&given);
    assert_eq!((both.bf16, both.memory, both.fp16), (Some(8e14), Some(3.5e12), peaks.fp16));
}

#[test]
fn kernels_name_the_type_that_they_round_to() {
    assert!(is_tf32("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16"));
    assert!(is_tf32("ampere_sgemm_cutlass_80_tensorop_s1688gemm_128x128"));
    assert!(!is_tf32("volta_sgemm_128x64_tn"));
}

#[test]
fn an_error_names_the_wrong_part_of_the_peaks() {
    for (text, part) in [
        ("bf16", "no `=`"),
        ("bf17=3T", "there is no `bf17`"),
        ("bf16=-3T", "not a number above 0"),
        ("bf16=T", "not a number above 0"),
        ("memory=NaN", "not a number above 0"),
    ] {
        assert!(Peaks::parse(text).unwrap_err().contains(part), "{text}");
    }
}
