//! Contains the rules, one per file.

mod allocation_churn;
mod arena_growth;
mod blocking_io;
mod cache_miss;
mod collective_wait;
mod compilation;
mod compile_in_steady_state;
mod compiled;
mod compute_bound;
mod copies;
mod counters;
mod cuda_graphs_skipped;
mod data_inline;
mod data_load_bound;
mod data_wait;
mod device_allocations;
mod device_errors;
mod device_memory_growth;
mod empty_cache;
mod error_consequences;
mod error_rates;
mod exposed_communication;
mod exposed_copies;
mod file_part;
mod forked_copies;
mod fragmented_memory;
mod gc_pauses;
mod gil_contention;
mod gpu_gaps;
mod graph_break;
mod growing;
mod growth_time;
mod hang;
mod heap_growth;
pub(super) mod host_part;
mod hot_function;
mod kernel_kinds;
mod launch_bound;
mod likely_line;
mod lock_contention;
mod low_precision_unused;
mod low_utilization;
mod machine_errors;
mod machine_load;
mod memory_bound;
mod memory_near_limit;
mod modelled;
mod network_wait;
pub(super) mod no_free_core;
mod odd_shapes;
mod other_wait;
mod out_of_device_memory;
mod pageable_copies;
mod peak_holder;
mod read_twice;
mod recompilation;
mod recompiled;
mod recomputation;
mod slow_collective;
mod slow_stage;
mod slow_step;
mod slow_storage;
mod small_batches;
mod small_reads;
mod start_up;
mod statuses;
pub(super) mod stragglers;
mod sync_bound;
mod sync_checkpoint;
mod synchronous_copies;
mod synchronous_memsets;
mod unfused_attention;
mod unoptimized_op;
mod waiting_ranks;

use super::rule::Rule;

/// All rules that judge a single rank, in the order in which they are checked.
pub(super) const RULES: &[&dyn Rule] = &[
    &hang::Hang,
    &slow_step::SlowStep,
    &machine_errors::MachineErrors,
    &out_of_device_memory::OutOfDeviceMemory,
    &device_errors::DeviceErrors,
    &low_utilization::LowUtilization,
    &gpu_gaps::GpuGaps,
    &launch_bound::LaunchBound,
    &data_load_bound::DataLoadBound,
    &sync_bound::SyncBound,
    &pageable_copies::PageableCopies,
    &synchronous_copies::SynchronousCopies,
    &synchronous_memsets::SynchronousMemsets,
    &exposed_copies::ExposedCopies,
    &exposed_communication::ExposedCommunication,
    &slow_collective::SlowCollective,
    &small_batches::SmallBatches,
    &unoptimized_op::UnoptimizedOp,
    &unfused_attention::UnfusedAttention,
    &odd_shapes::OddShapes,
    &low_precision_unused::LowPrecisionUnused,
    &recomputation::Recomputation,
    &memory_bound::MemoryBound,
    &compute_bound::ComputeBound,
    &fragmented_memory::FragmentedMemory,
    &empty_cache::EmptyCache,
    &device_allocations::DeviceAllocations,
    &allocation_churn::AllocationChurn,
    &recompilation::Recompilation,
    &graph_break::GraphBreak,
    &compile_in_steady_state::CompileInSteadyState,
    &cache_miss::CacheMiss,
    &compilation::Compilation,
    &cuda_graphs_skipped::CudaGraphsSkipped,
    &hot_function::HotFunction,
    &data_wait::DataWait,
    &data_inline::DataInline,
    &gil_contention::GilContention,
    &lock_contention::LockContention,
    &small_reads::SmallReads,
    &read_twice::ReadTwice,
    &slow_storage::SlowStorage,
    &blocking_io::BlockingIo,
    &network_wait::NetworkWait,
    &sync_checkpoint::SyncCheckpoint,
    &collective_wait::CollectiveWait,
    &other_wait::OtherWait,
    &gc_pauses::GcPauses,
    &no_free_core::NoFreeCore,
    &heap_growth::HeapGrowth,
    &device_memory_growth::DeviceMemoryGrowth,
    &peak_holder::PeakHolder,
    &memory_near_limit::MemoryNearLimit,
    &forked_copies::ForkedCopies,
    &start_up::StartUp,
];
