use super::*;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;

fn op(code: u16, if_true: u8, if_false: u8, k: u32) -> Instruction {
    Instruction { code, if_true, if_false, k }
}

fn words(program: &[Instruction]) -> Vec<u64> {
    let word = |Instruction { code, if_true, if_false, k }: &Instruction| {
        u64::from(*code)
            | u64::from(*if_true) << 16
            | u64::from(*if_false) << 24
            | u64::from(*k) << 32
    };
    program.iter().map(word).collect()
}

fn permits(program: &[Instruction], call: SystemCall) -> bool {
    let program = words(program);
    let head = [program.len(), program.as_ptr() as usize];
    Filter::at(head.as_ptr() as usize).expect("it is readable").permits(&[call])
}

fn call(number: u32, first: Option<u64>) -> SystemCall {
    SystemCall { number, arguments: [first, None, None, None, None, None] }
}

#[test]
fn a_filter_that_lists_permitted_calls_is_interpreted() {
    let program = [
        op(0x20, 0, 0, 4),
        op(0x15, 1, 0, AUDIT_ARCH),
        op(0x06, 0, 0, KILL),
        op(0x20, 0, 0, 0),
        op(0x35, 0, 1, 0x4000_0000), // x32
        op(0x06, 0, 0, KILL),
        op(0x15, 1, 0, 39),
        op(0x06, 0, 0, KILL),
        op(0x06, 0, 0, ALLOW),
    ];
    assert!(permits(&program, call(39, None)));
    assert!(!permits(&program, call(40, None)));
    assert!(!permits(&program, call(0x4000_0000 + 39, None)));
}

#[test]
fn a_known_argument_decides_and_an_unknown_one_must_pass_on_both_branches() {
    let program = [
        op(0x20, 0, 0, 16), // the first argument's low word
        op(0x54, 0, 0, 0xff),
        op(0x15, 0, 3, 7),
        op(0x20, 0, 0, 20), // and its high one
        op(0x15, 0, 1, 0),
        op(0x06, 0, 0, ALLOW),
        op(0x06, 0, 0, 0x0005_0001), // an error
    ];
    assert!(permits(&program, call(1, Some(0x107))));
    assert!(!permits(&program, call(1, Some(8))));
    assert!(!permits(&program, call(1, Some(1 << 32 | 7))));
    assert!(!permits(&program, call(1, None)));
    // If both branches permit the call, the argument need not be known.
    let either =
        [op(0x20, 0, 0, 16), op(0x45, 1, 0, 6), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, ALLOW)];
    assert!(permits(&either, call(1, None)));
}

#[test]
fn branches_that_meet_keep_only_what_holds_on_both() {
    // The accumulator is set to one of two actions, depending on an unknown argument, and is
    // then returned.
    let program = |one: u32, other: u32| {
        [
            op(0x20, 0, 0, 16),
            op(0x15, 0, 2, 5),
            op(0x00, 0, 0, one),
            op(0x05, 0, 0, 1),
            op(0x00, 0, 0, other),
            op(0x16, 0, 0, 0),
        ]
    };
    assert!(permits(&program(ALLOW, ALLOW), call(1, None)));
    assert!(!permits(&program(ALLOW, KILL), call(1, None)));
    assert!(permits(&program(ALLOW, KILL), call(1, Some(5))));
}

#[test]
fn filters_that_cannot_be_interpreted_permit_nothing() {
    assert!(!permits(&[op(0x20, 0, 0, 0)], call(1, None)), "no return");
    assert!(
        !permits(&[op(0x05, 0, 0, 9), op(0x06, 0, 0, ALLOW)], call(1, None)),
        "jump past the end"
    );
    assert!(!permits(&[op(0x05, 0, 0, u32::MAX), op(0x06, 0, 0, ALLOW)], call(1, None)));
    assert!(!permits(&[op(0xff, 0, 0, 0), op(0x06, 0, 0, ALLOW)], call(1, None)), "unknown opcode");
    let by_x = [op(0x01, 0, 0, 1), op(0x1d, 0, 1, 0), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, KILL)];
    assert!(!permits(&by_x, call(1, None)), "jump that compares with X");
    assert!(!permits(&[op(0x06, 0, 0, 0x7ffc_0000)], call(1, None)), "SECCOMP_RET_LOG");
}

#[test]
fn a_filter_that_cannot_be_read_is_none() {
    assert!(Filter::at(0).is_none());
    assert!(Filter::at(8).is_none());
    let empty = [0usize, 4096];
    assert!(Filter::at(empty.as_ptr() as usize).is_none(), "empty program");
    let nowhere = [3usize, 8];
    assert!(Filter::at(nowhere.as_ptr() as usize).is_none());
    let page = sys::map_anonymous(8192).unwrap();
    // SAFETY: the mapping is this test's own.
    assert!(unsafe { sys::protect(page.wrapping_add(4096), 4096, sys::flags::PROT_NONE) });
    let cut = [2, page as usize + 4096 - 8];
    assert!(Filter::at(cut.as_ptr() as usize).is_none(), "half of it");
    let whole = [1, page as usize + 4096 - 8];
    assert!(Filter::at(whole.as_ptr() as usize).is_some());
    let too_long = [MOST + 1, page as usize];
    assert!(Filter::at(too_long.as_ptr() as usize).is_none(), "the kernel refuses it");
    for len in [1, 2, 3, 512, 513] {
        let (mut here, mut by_kernel) = (vec![1; len], vec![2; len]);
        for at in [page as usize, page as usize + 4096 - 8 * len.min(512), page as usize + 4] {
            let is_whole = copy(at, &mut by_kernel);
            assert_eq!(copy_here(at, &mut here), is_whole, "{len}");
            assert!(!is_whole || here == by_kernel);
            assert_eq!(is_whole, at + 8 * len <= page as usize + 4096, "{len}");
        }
    }
}

#[test]
fn a_program_that_another_thread_takes_away_is_whole_or_missing() {
    // Without the call that copies, this test would prove nothing.
    INHERITED.store(NO, Relaxed);
    assert!(sys::read_memory(sys::pid(), (&raw const INHERITED).addr() as u64 & !7, &mut [0]) > 0);
    let page = sys::map_anonymous(4096).unwrap();
    let program = words(&[op(0x06, 0, 0, ALLOW); 512]);
    // SAFETY: the mapping is this test's own, and has room for 512 words.
    unsafe { core::ptr::copy_nonoverlapping(program.as_ptr(), page.cast(), 512) };
    let (page, head) = (page as usize, [512, page as usize]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for protection in [sys::flags::PROT_NONE, sys::flags::PROT_READ] {
                    // SAFETY: nothing but the filter reads the page, which expects this.
                    assert!(unsafe { sys::protect(page as *mut u8, 4096, protection) });
                }
            }
        });
        for _ in 0..20_000 {
            if let Some(mut filter) = Filter::at(head.as_ptr() as usize) {
                assert!(filter.permits(&[call(1, None)]));
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

fn verdict(program: &[Instruction], number: u32) -> bool {
    permits(program, call(number, Some(0)))
}

/// Allows the call if the accumulator is then this value.
fn equals(before: &[Instruction], value: u32) -> bool {
    let end = [op(0x15, 0, 1, value), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, KILL)];
    verdict(&[before, &end].concat(), 5)
}

#[test]
fn arithmetic_is_done_with_32_bits() {
    for (code, value, k, result) in [
        (0x04, u32::MAX, 2, 1),
        (0x14, 1, 2, u32::MAX),
        (0x24, 1 << 31, 2, 0),
        (0x34, 7, 2, 3),
        (0x44, 5, 2, 7),
        (0x54, 7, 2, 2),
        (0x64, 1, 31, 1 << 31),
        (0x74, 1 << 31, 31, 1),
        (0x84, 1, 0, u32::MAX),
        (0xa4, 7, 2, 5),
    ] {
        assert!(equals(&[op(0x00, 0, 0, value), op(code, 0, 0, k)], result), "{code:x}");
        assert!(!equals(&[op(0x00, 0, 0, value), op(code, 0, 0, k)], result ^ 1), "{code:x}");
    }
}

#[test]
fn the_result_of_a_division_by_zero_or_a_long_shift_is_not_known() {
    for code in [0x34, 0x64, 0x74] {
        let k = if code == 0x34 { 0 } else { 32 };
        assert!(!equals(&[op(0x00, 0, 0, 1), op(code, 0, 0, k)], 0), "{code:x}");
    }
}

#[test]
fn comparisons_take_the_branch_that_holds() {
    for (code, k, holds) in [
        (0x15, 5, true),
        (0x15, 6, false),
        (0x25, 4, true),
        (0x25, 5, false),
        (0x35, 5, true),
        (0x35, 6, false),
        (0x45, 4, true),
        (0x45, 2, false),
    ] {
        let program =
            [op(0x20, 0, 0, 0), op(code, 0, 1, k), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, KILL)];
        assert_eq!(verdict(&program, 5), holds, "{code:x} {k}");
    }
}

#[test]
fn the_address_of_a_call_is_not_known() {
    for offset in [8, 12] {
        assert!(!equals(&[op(0x20, 0, 0, offset)], 0));
    }
}

#[test]
fn a_word_beyond_the_call_is_not_known() {
    assert!(!equals(&[op(0x20, 0, 0, 64)], 0));
}

#[test]
fn each_argument_has_its_two_words() {
    let arguments = [1, 2, 3, 4, 5, 6].map(|n: u64| Some(n << 32 | (n + 10)));
    for n in 0..6u32 {
        for (offset, value) in [(16 + n * 8, n + 11), (20 + n * 8, n + 1)] {
            let program = [
                op(0x20, 0, 0, offset),
                op(0x15, 0, 1, value),
                op(0x06, 0, 0, ALLOW),
                op(0x06, 0, 0, KILL),
            ];
            assert!(permits(&program, SystemCall { number: 1, arguments }), "{offset}");
        }
    }
}

#[test]
fn what_is_kept_in_scratch_memory_is_not_known_afterwards() {
    let kept = [op(0x00, 0, 0, 7), op(0x02, 0, 0, 0), op(0x00, 0, 0, 0), op(0x60, 0, 0, 0)];
    assert!(!equals(&kept, 7) && !equals(&kept, 0));
}

#[test]
fn keeping_the_accumulator_leaves_it_as_it_is() {
    for code in [0x02, 0x07, 0x01, 0x61, 0x81, 0x03] {
        assert!(equals(&[op(0x00, 0, 0, 7), op(code, 0, 0, 1)], 7), "{code:x}");
    }
}

#[test]
fn what_x_is_mixed_with_is_not_known() {
    for code in [0x87, 0x0c, 0x5c, 0xac] {
        assert!(!equals(&[op(0x00, 0, 0, 7), op(code, 0, 0, 1)], 7), "{code:x}");
    }
}

#[test]
fn the_length_of_a_calls_data_is_64() {
    assert!(equals(&[op(0x80, 0, 0, 0)], 64));
}

#[test]
fn an_instruction_that_is_not_reached_does_not_matter() {
    let program = [op(0x05, 0, 0, 1), op(0xff, 0, 0, 0), op(0x06, 0, 0, ALLOW)];
    assert!(verdict(&program, 1));
}

#[test]
fn all_of_the_calls_have_to_be_permitted() {
    let program =
        words(&[op(0x20, 0, 0, 0), op(0x15, 1, 0, 7), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, KILL)]);
    let head = [program.len(), program.as_ptr() as usize];
    let mut filter = Filter::at(head.as_ptr() as usize).unwrap();
    assert!(filter.permits(&[call(1, None), call(2, None)]));
    assert!(!filter.permits(&[call(1, None), call(7, None)]));
    assert!(!filter.permits(&[call(7, None), call(1, None)]));
    assert!(filter.permits(&[call(1, None)]), "one answer does not change the next");
}

#[test]
fn a_program_of_the_greatest_length_is_followed_to_its_end() {
    let mut program = vec![op(0x00, 0, 0, 1); MOST];
    program[MOST - 1] = op(0x06, 0, 0, ALLOW);
    assert!(verdict(&program, 1));
    program[MOST - 1] = op(0x06, 0, 0, KILL);
    assert!(!verdict(&program, 1));
}

#[test]
fn every_action_but_allowing_refuses() {
    for action in [0, 0x8000_0000, 0x0003_0000, 0x0005_0026, 0x7fc0_0000, 0x7ff0_0000, 0x7ffc_0000]
    {
        assert!(!verdict(&[op(0x06, 0, 0, action)], 1), "{action:x}");
        assert!(!verdict(&[op(0x00, 0, 0, action), op(0x16, 0, 0, 0)], 1), "{action:x}");
    }
    assert!(verdict(&[op(0x06, 0, 0, ALLOW | 0xffff)], 1), "its data does not matter");
}
