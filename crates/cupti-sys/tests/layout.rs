//! Checks that the fields of the compiled declarations have the offsets that they have in the
//! headers of five CUDA versions. `scripts/bindgen.sh` writes those to `offsets.txt`.

use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use tprof_cupti_sys::*;

const TABLE: &str = include_str!("offsets.txt");

/// Maps (record, field) to the field's offset in each CUDA version.
fn table() -> HashMap<(&'static str, &'static str), Vec<&'static str>> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    let row = |line: &'static str| {
        let mut words = line.split(' ');
        let key = (words.next().unwrap(), words.next().unwrap());
        (key, words.collect())
    };
    lines.map(row).collect()
}

macro_rules! prefix {
    ($table:ident, $record:literal, $type:ty, [$($field:ident)*]) => {
        let mut read = vec![$((stringify!($field).trim_end_matches('_'), offset_of!($type, $field))),*];
        read.sort_unstable();
        let mut pinned: Vec<_> = $table.keys().filter(|k| k.0 == $record && k.1 != "-").map(|k| k.1).collect();
        pinned.sort_unstable();
        assert_eq!(read.iter().map(|(f, _)| *f).collect::<Vec<_>>(), pinned, "fields of {}", $record);
        for (field, offset) in read {
            for found in &$table[&($record, field)] {
                assert_eq!(found.parse::<usize>(), Ok(offset), "{} {field}", $record);
            }
        }
    };
}

#[test]
fn every_field_that_is_read_has_one_offset_in_all_versions() {
    let table = table();
    prefix!(table, "Kernel", record::Kernel, [kind start end deviceId contextId streamId
        correlationId graphNodeId graphId registersPerThread gridX gridY gridZ blockX blockY blockZ
        staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId name
        queued submitted launchType channelID channelType clusterX clusterY clusterZ]);
    prefix!(table, "Memcpy", record::Memcpy, [kind start end deviceId contextId streamId
        correlationId graphNodeId graphId copyKind srcKind dstKind flags bytes]);
    prefix!(table, "MemcpyPtoP", record::MemcpyPeer, [kind start end deviceId contextId streamId
        correlationId graphNodeId graphId copyKind srcKind dstKind flags bytes srcDeviceId
        dstDeviceId]);
    prefix!(table, "Memset", record::Memset, [kind start end deviceId contextId streamId
        correlationId graphNodeId graphId value bytes flags memoryKind]);
    prefix!(table, "Memory", record::Memory, [kind memoryOperationType memoryKind correlationId
        address bytes timestamp processId deviceId contextId streamId isAsync]);
    prefix!(table, "Synchronization", record::Synchronization, [kind start end type_ correlationId
        contextId streamId cudaEventId]);
    prefix!(table, "Overhead", record::Overhead, [kind start end overheadKind objectKind objectId]);
    prefix!(table, "API", record::Api, [kind start end cbid processId threadId correlationId
        returnValue]);
    prefix!(table, "Context", record::Context, [kind contextId deviceId computeApiKind
        nullStreamId]);
    prefix!(table, "Device", record::Device, [kind globalMemoryBandwidth globalMemorySize
        l2CacheSize numThreadsPerWarp coreClockRate numMultiprocessors maxThreadsPerBlock
        maxBlocksPerMultiprocessor maxWarpsPerMultiprocessor maxSharedMemoryPerMultiprocessor
        maxSharedMemoryPerBlock maxRegistersPerMultiprocessor maxRegistersPerBlock
        computeCapabilityMajor computeCapabilityMinor id uuid name]);
    prefix!(table, "Stream", record::Stream, [kind contextId streamId priority flag
        correlationId]);
    prefix!(table, "GraphTrace", record::GraphTrace, [kind start end deviceId contextId streamId
        correlationId graphId]);
    prefix!(table, "Name", record::Name, [kind objectKind objectId name]);
    prefix!(table, "ExternalCorrelation", record::ExternalCorrelation, [kind externalKind
        externalId correlationId]);
    prefix!(table, "PCSamplingData", CUpti_PCSamplingData, [size collectNumPcs totalSamples
        droppedSamples totalNumPcs remainingNumPcs pPcData nonUsrKernelsTotalSamples
        hardwareBufferFull]);
    prefix!(table, "PCSamplingPCData", record::PcData, [size cubinCrc pcOffset functionName
        stallReasonCount stallReason]);
    prefix!(table, "PCSamplingStallReason", CUpti_PCSamplingStallReason,
        [pcSamplingStallReasonIndex samples]);
    prefix!(table, "PCSamplingConfigurationInfo", CUpti_PCSamplingConfigurationInfo,
        [attributeType attributeStatus attributeData]);
    prefix!(table, "PCSamplingConfigurationInfoParams", CUpti_PCSamplingConfigurationInfoParams,
        [size pPriv ctx numAttributes pPCSamplingConfigurationInfo]);
    prefix!(table, "PCSamplingEnableParams", CUpti_PCSamplingEnableParams, [size pPriv ctx]);
    prefix!(table, "PCSamplingDisableParams", CUpti_PCSamplingDisableParams, [size pPriv ctx]);
    prefix!(table, "PCSamplingGetDataParams", CUpti_PCSamplingGetDataParams,
        [size pPriv ctx pcSamplingData]);
    prefix!(table, "PCSamplingGetNumStallReasonsParams", CUpti_PCSamplingGetNumStallReasonsParams,
        [size pPriv ctx numStallReasons]);
    prefix!(table, "PCSamplingGetStallReasonsParams", CUpti_PCSamplingGetStallReasonsParams,
        [size pPriv ctx numStallReasons stallReasonIndex stallReasons]);
}

/// A newer CUPTI lays these out as the client's structure says only if that has its own size.
#[test]
fn structures_that_cupti_fills_as_a_whole_have_one_size_in_all_versions() {
    let table = table();
    for (record, bytes) in [
        ("PCSamplingData", size_of::<CUpti_PCSamplingData>()),
        ("PCSamplingStallReason", size_of::<CUpti_PCSamplingStallReason>()),
        ("PCSamplingConfigurationInfo", size_of::<CUpti_PCSamplingConfigurationInfo>()),
    ] {
        for entry in &table[&(record, "-")] {
            assert_eq!(entry.split_once(':').unwrap().1, bytes.to_string(), "{record}");
        }
    }
}

#[test]
fn every_version_has_records_at_least_as_long_as_what_is_read() {
    let table = table();
    for (record, bytes) in [
        ("Kernel", size_of::<record::Kernel>()),
        ("Memcpy", size_of::<record::Memcpy>()),
        ("MemcpyPtoP", size_of::<record::MemcpyPeer>()),
        ("Memset", size_of::<record::Memset>()),
        ("Memory", size_of::<record::Memory>()),
        ("Synchronization", size_of::<record::Synchronization>()),
        ("Overhead", size_of::<record::Overhead>()),
        ("API", size_of::<record::Api>()),
        ("Context", size_of::<record::Context>()),
        ("Device", size_of::<record::Device>()),
        ("Stream", size_of::<record::Stream>()),
        ("GraphTrace", size_of::<record::GraphTrace>()),
        ("Name", size_of::<record::Name>()),
        ("ExternalCorrelation", size_of::<record::ExternalCorrelation>()),
        ("PCSamplingPCData", size_of::<record::PcData>()),
    ] {
        let sizes = table[&(record, "-")].iter().map(|entry| entry.split_once(':').unwrap().1);
        for size in sizes {
            assert!(size.parse::<usize>().unwrap() >= bytes, "{record}: {size} < {bytes}");
        }
    }
}
