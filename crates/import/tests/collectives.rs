//! Tests that a collective becomes one row, even if several parts of the trace record it.

use crate::common::*;
use tprof_trace::model::*;

const CALL: &str = r#"{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":7,"tid":8,"ts":10,"dur":100,"args":{"External id":42,"Collective name":"allreduce","In msg nelems":1000,"Out msg nelems":1000,"Group size":2,"dtype":"BFloat16","Process Group Name":"1","Process Group Description":"dp","Process Group Ranks":"[0, 4]","Seq":17}}"#;
const ANNOTATION: &str = r#"{"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":7,"tid":8,"ts":20,"dur":50,"args":{"External id":43,"Input Dims":[[1000]],"Input type":["c10::BFloat16"]}}"#;
const LAUNCH: &str = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernelExC","pid":7,"tid":8,"ts":30,"dur":5,"args":{"External id":42,"correlation":900}}"#;
const KERNEL: &str = r#"{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)","pid":0,"tid":20,"ts":200,"dur":30,"args":{"External id":42,"device":0,"stream":20,"correlation":900}}"#;
const WAIT: &str = r#"{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":7,"tid":8,"ts":300,"dur":5,"args":{"External id":50,"Collective name":"wait","In msg nelems":0}}"#;

fn one(run: &Run) -> Collective {
    let rows = run.rows::<Collective>();
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]
}

#[test]
fn call_annotation_and_kernel_become_one_row() {
    for events in
        [[CALL, ANNOTATION, LAUNCH, KERNEL, WAIT], [KERNEL, ANNOTATION, CALL, LAUNCH, WAIT]]
    {
        let run = import_events(&events);
        let row = one(&run);
        assert_eq!(
            (row.start_ns, row.duration_ns, row.correlation),
            (10_000, Some(100_000), Some(900))
        );
        assert_eq!((run.name(row.name), row.bytes), ("all_reduce", Some(2000)));
        assert_eq!((row.communicator, row.sequence, row.stream), (Some(1), Some(17), Some(20)));
        let group = &run.file().communicators()[0];
        assert_eq!((group.communicator, &group.ranks[..]), (1, &[0, 4][..]));
    }
}

#[test]
fn a_kernel_without_arguments_is_joined_through_its_launch() {
    let old_kernel = KERNEL.replace("\"External id\":42", "\"External id\":900");
    let run = import_events(&[ANNOTATION, LAUNCH, &old_kernel]);
    let row = one(&run);
    assert_eq!((row.start_ns, row.correlation), (20_000, Some(900)));
    assert_eq!((row.elements_in, row.bytes), (Some(1000), Some(2000)));
    assert_eq!(run.name(row.element_type), "BFloat16");
}

#[test]
fn arguments_on_the_kernel_alone_are_enough() {
    let kernel = KERNEL.replace(
        "\"device\":0",
        "\"Collective name\":\"_allgather_base\",\"In msg nelems\":5,\"Out msg nelems\":10,\"dtype\":\"Float\",\"device\":0",
    );
    let run = import_events(&[&kernel]);
    let row = one(&run);
    assert_eq!((run.name(row.name), row.bytes), ("all_gather", Some(40)));
    assert_eq!((row.thread, row.duration_ns, row.start_ns), (None, None, 200_000));
}

#[test]
fn a_kernel_alone_names_its_collective() {
    let run = import_events(&[KERNEL]);
    let row = one(&run);
    assert_eq!((run.name(row.name), row.bytes, row.communicator), ("all_reduce", None, None));
    // A kernel that does not communicate is not a collective.
    let run = import_events(&[&KERNEL.replace("ncclDevKernel", "gemm")]);
    assert_eq!(run.rows::<Collective>(), []);
}
