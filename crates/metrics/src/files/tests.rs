use tprof_trace::model::{FileCalls, FileKind, FileOperation};

use super::sums::FileSums;

fn read(bytes: u64, storage: Option<u64>) -> FileCalls {
    FileCalls {
        operation: FileOperation::Read,
        kind: FileKind::File,
        calls: 2,
        failed: 1,
        bytes,
        busy_ns: 500,
        longest_ns: 400,
        storage_bytes: storage,
        ..FileCalls::default()
    }
}

fn sum(rows: &[FileCalls]) -> FileSums {
    let mut sums = FileSums::default();
    rows.iter().for_each(|row| sums.add(row));
    sums
}

#[test]
fn what_came_from_memory_is_a_share_of_the_bytes_of_which_that_is_known() {
    assert_eq!(sum(&[read(100, None)]).cached_share(), None);
    assert_eq!(sum(&[read(100, None), read(100, Some(25))]).cached_share(), Some(0.75));
    assert_eq!(sum(&[read(100, Some(100))]).cached_share(), Some(0.0));
    // The kernel may have read ahead more than the program asked for.
    assert_eq!(sum(&[read(100, Some(300))]).cached_share(), Some(0.0));
}

#[test]
fn rates_are_of_the_time_in_calls_and_sizes_of_calls_that_succeeded() {
    let sums = sum(&[read(1_000, None), read(3_000, None)]);
    assert_eq!(sums.rate(), Some(4e9));
    assert_eq!(sums.bytes_per_call(), Some(2_000.0));
    assert_eq!((sums.calls, sums.failed, sums.longest_ns), (4, 2, 400));
    assert_eq!(sum(&[read(0, None)]).rate(), None);
    assert_eq!(sum(&[read(0, None)]).bytes_per_call(), None);
}
