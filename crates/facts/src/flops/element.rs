//! Parses the types of tensors' elements, as PyTorch's traces write them.

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementType {
    /// A boolean of one byte.
    Bool,
    /// An integer of one byte.
    Int8,
    /// An integer of two bytes.
    Int16,
    /// An integer of four bytes.
    Int32,
    /// An integer of eight bytes.
    Int64,
    /// Two floating-point numbers of half a byte each.
    Float4x2,
    /// A floating-point number of one byte.
    Float8,
    /// An IEEE floating-point number of two bytes.
    Float16,
    /// A floating-point number of two bytes, with the exponent of a four-byte one.
    BFloat16,
    /// An IEEE floating-point number of four bytes.
    Float32,
    /// An IEEE floating-point number of eight bytes.
    Float64,
    /// A complex number of two two-byte numbers.
    Complex32,
    /// A complex number of two four-byte numbers.
    Complex64,
    /// A complex number of two eight-byte numbers.
    Complex128,
}

use ElementType::*;

impl ElementType {
    /// Finds a type by its C++ name in a trace's `Input type`, or by its name from `c10::toString`.
    pub fn of(text: &str) -> Option<ElementType> {
        let text = text.strip_prefix("c10::").unwrap_or(text);
        Some(match text {
            "bool" | "Bool" => Bool,
            "unsigned char" | "signed char" | "char" | "Byte" | "Char" => Int8,
            "short int" | "short" | "Short" | "unsigned short" => Int16,
            "int" | "Int" | "unsigned int" => Int32,
            "long int" | "long" | "Long" | "long long" | "unsigned long" => Int64,
            "Half" => Float16,
            "BFloat16" => BFloat16,
            "float" | "Float" => Float32,
            "double" | "Double" => Float64,
            "Float4_e2m1fn_x2" => Float4x2,
            _ if text.starts_with("Float8") => Float8,
            "complex<c10::Half>" | "ComplexHalf" => Complex32,
            "complex<float>" | "ComplexFloat" => Complex64,
            "complex<double>" | "ComplexDouble" => Complex128,
            _ => return None,
        })
    }

    /// Finds a type by its number in `c10::ScalarType`, which operators take as an argument.
    pub fn of_number(number: i64) -> Option<ElementType> {
        Some(match number {
            0 | 1 => Int8,
            2 => Int16,
            3 => Int32,
            4 => Int64,
            5 => Float16,
            6 => Float32,
            7 => Float64,
            8 => Complex32,
            9 => Complex64,
            10 => Complex128,
            11 => Bool,
            15 => BFloat16,
            23..=26 | 44 => Float8,
            45 => Float4x2,
            _ => return None,
        })
    }

    /// Returns the size of one element in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Bool | Int8 | Float8 | Float4x2 => 1,
            Int16 | Float16 | BFloat16 => 2,
            Int32 | Float32 | Complex32 => 4,
            Int64 | Float64 | Complex64 => 8,
            Complex128 => 16,
        }
    }

    /// Returns the name of the type in `torch`.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            Int8 => "int8",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            Float4x2 => "float4",
            Float8 => "float8",
            Float16 => "float16",
            BFloat16 => "bfloat16",
            Float32 => "float32",
            Float64 => "float64",
            Complex32 => "complex32",
            Complex64 => "complex64",
            Complex128 => "complex128",
        }
    }

    /// Returns the category for type promotion: booleans, integers, floating point, complex
    /// numbers. A result has the highest category of its inputs.
    fn category(self) -> u8 {
        match self {
            Bool => 0,
            Int8 | Int16 | Int32 | Int64 => 1,
            Complex32 | Complex64 | Complex128 => 3,
            _ => 2,
        }
    }

    /// Whether the type is boolean or an integer.
    pub fn is_whole(self) -> bool {
        self.category() < 2
    }

    /// Returns the result type of an operation on tensors with these types (`torch.promote_types`).
    /// `small` are the types of tensors without dimensions, of which only the category counts.
    pub(super) fn joined(large: &[ElementType], small: &[ElementType]) -> Option<ElementType> {
        let join = |all: &[ElementType]| all.iter().copied().reduce(ElementType::with);
        match (join(large), join(small)) {
            (Some(large), Some(small)) if small.category() > large.category() => Some(small),
            (large, small) => large.or(small),
        }
    }

    fn with(self, other: ElementType) -> ElementType {
        match (self, other) {
            (Float16, BFloat16) | (BFloat16, Float16) => Float32,
            (a, b) if a.category() != b.category() => {
                if a.category() > b.category() {
                    a
                } else {
                    b
                }
            }
            (a, b) => a.max(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_traces_are_known_and_others_are_not() {
        assert_eq!(ElementType::of("c10::BFloat16"), Some(BFloat16));
        assert_eq!(ElementType::of("c10::Float8_e4m3fn").map(ElementType::bytes), Some(1));
        assert_eq!(ElementType::of("long int"), Some(Int64));
        assert_eq!(ElementType::of("c10::complex<float>"), Some(Complex64));
        for none in ["", "Scalar", "TensorList", "c10::ScalarType 77"] {
            assert_eq!(ElementType::of(none), None);
        }
    }

    #[test]
    fn results_have_the_type_that_torch_gives_them() {
        assert_eq!(ElementType::joined(&[Float16, BFloat16], &[]), Some(Float32));
        assert_eq!(ElementType::joined(&[BFloat16], &[Float64]), Some(BFloat16));
        assert_eq!(ElementType::joined(&[Int64], &[Float32]), Some(Float32));
        assert_eq!(ElementType::joined(&[Int64, Float16], &[]), Some(Float16));
        assert_eq!(ElementType::joined(&[], &[Int64]), Some(Int64));
        assert_eq!(ElementType::joined(&[], &[]), None);
    }
}
