//! Reads the arguments that PyTorch records for a collective: its name, and the types and sizes of
//! its tensors.

/// Returns the name of an operation in `torch.distributed`: `all_gather` for `_allgather_base`.
pub fn operation(name: &str) -> String {
    let mut name = name.trim_start_matches('_').to_ascii_lowercase();
    for ending in ["_base", "_into_tensor", "_coalesced", "_base", "_single", "_tensor"] {
        name.truncate(name.strip_suffix(ending).unwrap_or(&name).len());
    }
    for (short, long) in
        [("allreduce", "all_reduce"), ("allgather", "all_gather"), ("alltoall", "all_to_all")]
    {
        name = name.replace(short, long);
    }
    match name.as_str() {
        "all_to_allv" => "all_to_all".to_owned(),
        "reducescatter" => "reduce_scatter".to_owned(),
        _ => name,
    }
}

/// Converts a C++ type to PyTorch's name of the scalar type.
pub fn element_type(text: &[u8]) -> &'static str {
    match text {
        b"float" => "Float",
        b"double" => "Double",
        b"c10::Half" => "Half",
        b"c10::BFloat16" => "BFloat16",
        b"int" => "Int",
        b"long int" | b"long" => "Long",
        b"short" | b"short int" => "Short",
        b"signed char" | b"char" => "Char",
        b"unsigned char" => "Byte",
        b"bool" => "Bool",
        _ => "",
    }
}

/// Returns the size of an element of one of PyTorch's scalar types in bytes; `None` for an unknown
/// type.
pub fn element_bytes(element_type: &str) -> Option<u64> {
    Some(match element_type {
        "Double" | "Long" | "ComplexFloat" => 8,
        "Float" | "Int" => 4,
        "Half" | "BFloat16" | "Short" => 2,
        "Char" | "Byte" | "Bool" => 1,
        "ComplexDouble" => 16,
        name if name.starts_with("Float8") => 1,
        _ => return None,
    })
}

/// Returns the number of elements of all tensors with the sizes `[[2, 3], [4]]`, or of one tensor
/// with the sizes `[2, 3]`.
pub fn elements(dims: &[u8]) -> Option<u64> {
    let dims: Vec<Vec<u64>> = serde_json::from_slice(dims).ok()?;
    let product = |dims: &Vec<u64>| {
        let whole = dims.iter().try_fold(1_u64, |product, n| product.checked_mul(*n));
        if dims.is_empty() { Some(0) } else { whole }
    };
    let sum = dims.iter().try_fold(0_u64, |sum, dims| sum.checked_add(product(dims)?))?;
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_an_operation_have_one_name() {
        for (written, meant) in [
            ("allreduce", "all_reduce"),
            ("_reduce_scatter_base", "reduce_scatter"),
            ("_allgather_base", "all_gather"),
            ("all_to_allv", "all_to_all"),
            ("allreduce_coalesced", "all_reduce"),
            ("send", "send"),
        ] {
            assert_eq!(operation(written), meant);
        }
    }

    #[test]
    fn the_number_of_elements_is_the_product_of_dimensions() {
        assert_eq!(elements(b"[[2, 1024], [3]]"), Some(2051));
        assert_eq!(elements(b"[[]]"), None);
        assert_eq!(elements(b"[[18446744073709551615, 2]]"), None);
        assert_eq!(elements(b"[2, 3]"), None);
    }
}
