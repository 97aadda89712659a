use super::*;

fn args(dims: &str, types: &str, values: &str) -> String {
    format!(r#"{{"Input Dims":{dims},"Input type":{types},"Concrete Inputs":{values}}}"#)
}

fn work(operator: &str, dims: &str, types: &str, values: &str) -> Work {
    match of(operator, &args(dims, types, values)) {
        Count::Work(work) => work,
        other => panic!("{operator}: {other:?}"),
    }
}

fn unread(operator: &str, dims: &str, types: &str) -> String {
    match of(operator, &args(dims, types, "[]")) {
        Count::Unread(why) => why.to_string(),
        other => panic!("{operator}: {other:?}"),
    }
}

#[test]
fn a_product_takes_two_operations_for_each_pair_of_elements() {
    let halves = r#"["c10::Half","c10::Half","c10::Half"]"#;
    let mm = work("aten::mm", "[[2,3],[3,5]]", halves, "[]");
    assert_eq!((mm.flops, mm.read, mm.written), (60, Some(42), Some(20)));
    assert_eq!(mm.of, Some(ElementType::Float16));
    let addmm = work("aten::addmm", "[[5],[2,3],[3,5]]", halves, "[]");
    assert_eq!((addmm.flops, addmm.read), (60, Some(52)));
    assert_eq!(work("aten::bmm", "[[4,2,3],[4,3,5]]", halves, "[]").flops, 240);
    assert_eq!(work("aten::baddbmm", "[[1],[4,2,3],[4,3,5]]", halves, "[]").flops, 240);
    let linear = work("aten::linear", "[[7,2,3],[5,3],[5]]", halves, "[]");
    assert_eq!((linear.flops, linear.written), (420, Some(140)));
    assert_eq!(work("aten::mv", "[[2,3],[3]]", halves, "[]").flops, 12);
    assert_eq!(work("aten::dot", "[[3],[3]]", halves, "[]").flops, 6);
    let groups = r#"["c10::BFloat16","c10::BFloat16","int","","Scalar"]"#;
    let grouped = work("aten::_grouped_mm", "[[8,3],[4,3,5],[4],[],[]]", groups, "[]");
    assert_eq!((grouped.flops, grouped.written), (240, Some(80)));
    let weights = work("aten::_grouped_mm", "[[3,8],[8,5],[4],[],[]]", groups, "[]");
    assert_eq!((weights.flops, weights.written), (240, Some(120)));
}

#[test]
fn a_scaled_product_has_the_requested_result_type() {
    let types = r#"["c10::Float8_e4m3fn","c10::Float8_e4m3fn","float","float","","","Scalar"]"#;
    let dims = "[[16,32],[32,8],[],[],[],[],[]]";
    let known = work("aten::_scaled_mm", dims, types, r#"["","","","","","","15"]"#);
    assert_eq!((known.flops, known.read, known.written), (8192, Some(768), Some(256)));
    assert_eq!(work("aten::_scaled_mm", dims, types, "[]").written, None);
}

#[test]
fn a_convolution_applies_the_filter_at_each_point() {
    let types = r#"["float","float","float","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar"]"#;
    let dims = "[[2,4,9,9],[6,2,3,3],[6],[],[],[],[],[],[]]";
    let values = |transposed| {
        format!(r#"["","","","[2, 2]","[1, 1]","[1, 1]","{transposed}","[0, 0]","2"]"#)
    };
    let conv = work("aten::convolution", dims, types, &values("False"));
    // The result has 5 x 5 points.
    assert_eq!(conv.flops, 2 * 25 * 2 * 6 * 2 * 9);
    assert_eq!(conv.written, Some(2 * 6 * 25 * 4));
    let back = "[[2,6,5,5],[6,4,3,3],[6],[],[],[],[],[],[]]";
    let transposed = work("aten::convolution", back, types, &values("True"));
    assert_eq!(transposed.flops, 2 * 25 * 2 * 6 * 4 * 9);
    assert_eq!(transposed.written, Some(2 * 8 * 9 * 9 * 4));
    // Old traces have neither stride nor padding.
    let Count::Unread(why) = of("aten::convolution", &args(dims, types, "[]")) else { panic!() };
    assert!(why.to_string().contains("stride"), "{why}");
    let cudnn = r#"["float","float","ScalarList","ScalarList","ScalarList","Scalar"]"#;
    let values = r#"["","","[1, 1]","[2, 2]","[1, 1]","2"]"#;
    let inner = work("aten::cudnn_convolution", "[[2,4,9,9],[6,2,3,3],[],[],[],[]]", cudnn, values);
    assert_eq!(inner.flops, conv.flops);
}

#[test]
fn only_the_requested_gradients_of_a_convolution_count() {
    let types = r#"["float","float","float","ScalarList","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar","ScalarList"]"#;
    let dims = "[[2,6,5,5],[2,4,9,9],[6,2,3,3],[],[],[],[],[],[],[],[]]";
    let backward = |mask: &str| {
        let values =
            format!(r#"["","","","[6]","[2, 2]","[1, 1]","[1, 1]","False","[0, 0]","2","{mask}"]"#);
        work("aten::convolution_backward", dims, types, &values)
    };
    let one = 2 * 25 * 9 * 2 * 6 * 2;
    let both = backward("[True, True, True]");
    // For the gradient of the weight, torch's counter takes all channels of the input, even of
    // other groups.
    assert_eq!((both.flops, both.needed), (one + 2 * one, 2 * one));
    let weight = backward("[False, True, False]");
    assert_eq!((weight.flops, weight.needed), (2 * one, one));
    assert_eq!(weight.written, Some(6 * 2 * 9 * 4));
    assert!(unread("aten::convolution_backward", dims, types).contains("stride"));
}

#[test]
fn attention_is_two_products_forwards_and_five_backwards() {
    let halves = r#"["c10::Half","c10::Half","c10::Half","Scalar","Scalar"]"#;
    let dims = "[[2,8,16,4],[2,2,16,4],[2,2,16,4],[],[]]";
    let flash = "aten::_scaled_dot_product_flash_attention";
    let forward = work(flash, dims, halves, r#"["","","","0.","False"]"#);
    let product = 2 * 2 * 8 * 16 * 16 * 4;
    assert_eq!((forward.flops, forward.needed), (2 * product, 2 * product));
    let causal = work(flash, dims, halves, r#"["","","","0.","True"]"#);
    assert_eq!((causal.flops, causal.needed), (2 * product, 2 * product * 17 / 32));
    let inner = "[[2,16,8,4],[2,16,2,4],[2,16,2,4],[],[]]";
    assert_eq!(work("aten::_flash_attention_forward", inner, halves, "[]").flops, 2 * product);
    let five = r#"["c10::Half","c10::Half","c10::Half","c10::Half"]"#;
    let grads = "[[2,8,16,4],[2,8,16,4],[2,2,16,4],[2,2,16,4]]";
    let backward = work(&format!("{flash}_backward"), grads, five, "[]");
    assert_eq!(backward.flops, 5 * product);
    assert!(unread(flash, "[[2,8,16,4],[2,3,16,4],[2,3,16,4]]", halves).contains("heads"));
    let ragged = r#"["c10::Half","c10::Half","c10::Half","int"]"#;
    let varlen = "[[40,8,4],[40,8,4],[40,8,4],[5]]";
    assert!(unread("aten::_flash_attention_forward", varlen, ragged).contains("lengths"));
}

#[test]
fn other_operators_have_their_elements_and_bytes() {
    let floats = r#"["float","float","float"]"#;
    let add = work("aten::add", "[[4,1],[3],[]]", floats, "[]");
    assert_eq!((add.flops, add.read, add.written), (12, Some(28), Some(48)));
    let mul = work("aten::mul_", "[[4,3],[3]]", floats, "[]");
    assert_eq!((mul.flops, mul.read, mul.written), (12, Some(60), Some(48)));
    let less = work("aten::lt", "[[8],[8]]", floats, "[]");
    assert_eq!(less.written, Some(8));
    assert_eq!(work("aten::_softmax", "[[4,8]]", floats, "[]").flops, 160);
    let norm = work(
        "aten::native_layer_norm",
        "[[4,8],[],[8],[8]]",
        r#"["float","ScalarList","float","float"]"#,
        "[]",
    );
    assert_eq!((norm.flops, norm.read, norm.written), (224, Some(192), Some(128)));
    let sums = r#"["float","ScalarList","Scalar",""]"#;
    let sum = work("aten::sum", "[[4,8],[],[],[]]", sums, r#"["","[-1]","False",""]"#);
    assert_eq!((sum.flops, sum.read, sum.written), (32, Some(128), Some(16)));
    assert_eq!(work("aten::sum", "[[4,8],[],[],[]]", sums, "[]").written, None);
    let copy = work("aten::copy_", "[[4,8],[8]]", r#"["c10::Half","float"]"#, "[]");
    assert_eq!((copy.flops, copy.read, copy.written), (0, Some(32), Some(64)));
    let rows = work("aten::embedding", "[[100,8],[2,3]]", r#"["float","long int"]"#, "[]");
    assert_eq!((rows.flops, rows.read, rows.written), (0, Some(240), Some(192)));
    let lists = r#"["TensorList","TensorList","Scalar"]"#;
    let step = work("aten::_foreach_add_", "[[[4],[2,3]],[[4],[2,3]],[]]", lists, "[]");
    assert_eq!((step.flops, step.read), (10, None), "lists have no types");
    let typed = format!(
        r#"{{"Input Dims":[[[4],[2,3]],[[4],[2,3]],[]],"Input type":{lists},"Tensor types":["float","float",""]}}"#
    );
    let Count::Work(step) = of("aten::_foreach_add_", &typed) else { panic!() };
    assert_eq!((step.read, step.written), (Some(80), Some(40)));
}

#[test]
fn views_have_no_work_and_unknown_operators_have_a_reason() {
    assert_eq!(of("aten::view", ""), Count::Nothing);
    let reason = |name: &str, args: &str| match of(name, args) {
        Count::Unread(why) => why,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(reason("aten::mm", ""), WhyUncounted::NoShapes);
    assert_eq!(reason("aten::_fft_r2c", ""), WhyUncounted::NoFormula);
    assert_eq!(of("AddmmBackward0", r#"{"Input Dims":[[1]]}"#), Count::Nothing);
    assert_eq!(
        reason("triton_poi_fused_add_0", r#"{"Input Dims":[[1]]}"#),
        WhyUncounted::NoFormula
    );
    assert_eq!(reason("mylib::mm", r#"{"Input Dims":[[2,3],[3,4]]}"#), WhyUncounted::NoFormula);
    let floats = r#"["float","float","float"]"#;
    for (operator, dims, part) in [
        ("aten::mm", "[[2,3],[4,5]]", "inner sizes differ"),
        ("aten::mm", "[[2,3],[3,5,1]]", "another number of sizes"),
        ("aten::mm", "[[2,3]]", "not recorded"),
        ("aten::mm", "[[2,-3],[3,5]]", "negative"),
        ("aten::bmm", "[[2,2,3],[3,3,5]]", "numbers of matrices"),
        ("aten::add", "[[4],[3]]", "do not fit each other"),
        ("aten::mul_", "[[3],[4,3]]", "do not fit each other"),
        ("aten::mm", "[[4294967296,4294967296],[4294967296,4294967296]]", "too large"),
    ] {
        let why = unread(operator, dims, floats);
        assert!(why.contains(part), "{operator} {dims}: {why}");
    }
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    const NAMES: &[&str] = &[
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::linear",
        "aten::_grouped_mm",
        "aten::mv",
        "aten::convolution",
        "aten::convolution_backward",
        "aten::conv_transpose2d",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_flash_attention_backward",
        "aten::native_layer_norm",
        "aten::native_batch_norm",
        "aten::sum",
        "aten::max_pool2d",
        "aten::_adaptive_avg_pool2d",
        "aten::index_select",
        "aten::embedding",
        "aten::cat",
        "aten::_fused_adam_",
        "aten::_foreach_add_",
        "aten::where",
        "aten::nll_loss_forward",
        "aten::add",
        "aten::clamp_",
        "aten::var_mean",
        "aten::_embedding_bag",
        "aten::max",
    ];

    proptest! {
        #[test]
        fn formulas_accept_any_inputs_without_a_panic(
            name in prop::sample::select(NAMES),
            dims in prop::collection::vec(prop::collection::vec(prop_oneof![0_u64..5, any::<u64>()], 0..6), 0..12),
            types in prop::collection::vec(prop::sample::select(vec!["float", "Scalar", "ScalarList", "", "c10::Half", "TensorList"]), 0..12),
            values in prop::collection::vec(prop::sample::select(vec!["", "[1, 1]", "[-1]", "True", "False", "[True, True, False]", "3", "-9223372036854775808", "[0, 0]", "[9223372036854775807]", "[]"]), 0..12),
        ) {
            let args = serde_json::json!({
                "Input Dims": dims, "Input type": types, "Concrete Inputs": values,
            });
            of(name, &args.to_string());
        }

        #[test]
        fn arguments_that_are_not_json_are_accepted_without_a_panic(text in ".{0,80}") {
            of("aten::mm", &text);
            of("aten::mm", &format!("{{\"Input Dims\":{text}}}"));
        }
    }
}

#[test]
fn operations_and_bytes_are_those_of_published_reports() {
    let types = r#"["c10::BFloat16","c10::BFloat16","c10::BFloat16","","","","","",""]"#;
    let conv2d = r#"["","","","[16, 16]","[0, 0]","[1, 1]","False","[0, 0]","1"]"#;
    let conv3d = r#"["","","","[1, 1, 1]","[0, 0, 0]","[1, 1, 1]","False","[0, 0, 0]","1"]"#;
    let causal = r#"["","","","0.","True","False","0.125"]"#;
    let whole = r#"["","","","0.","False","False","0.088388347648318433"]"#;
    // Counts of AMD's TraceLens on H100 traces in its tests, in 10^9 operations and MiB. TraceLens
    // leaves out an addition for each element of addmm's result, and counts all of the diagonal of
    // causal attention.
    for (operator, dims, values, giga, mebibytes) in [
        ("addmm", "[[768],[788,768],[768,768]]", "[]", 0.930_167_808 - 0.000_605_184, 3.435_058_6),
        ("convolution", "[[4,3,224,224],[768,3,16,16],[768]]", conv2d, 0.924_844_032, 3.421_875),
        (
            "convolution",
            "[[1,96,6,258,258],[96,96,3,3,3],[96]]",
            conv3d,
            130.459_631_616,
            121.604_003_9,
        ),
        (
            "_scaled_dot_product_flash_attention",
            "[[16,16,559,64],[16,16,559,64],[16,16,559,64]]",
            causal,
            10.239_377_408 * 560.0 / 559.0,
            69.875,
        ),
        (
            "_scaled_dot_product_flash_attention",
            "[[1,12,32256,128],[1,12,512,128],[1,12,512,128]]",
            whole,
            101.468_602_368,
            192.0,
        ),
    ] {
        // Traces have empty sizes for each argument that is not a tensor.
        let dims = &format!("{}{}]", dims.trim_end_matches(']').to_owned() + "]", ",[]".repeat(6));
        let found = work(&format!("aten::{operator}"), dims, types, values);
        assert!((found.needed as f64 / (giga * 1e9) - 1.0).abs() < 1e-9, "{operator} {dims}");
        let moved = found.bytes().unwrap() as f64 / (1 << 20) as f64;
        assert!((moved / mebibytes - 1.0).abs() < 0.01, "{operator} {dims}: {moved}");
    }
}
