//! Types of tensors' elements, as PyTorch's traces write them.

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementType {
    /// A truth value.
    Bool,
    /// A whole number of one byte.
    Int8,
    /// A whole number of two bytes.
    Int16,
    /// A whole number of four bytes.
    Int32,
    /// A whole number of eight bytes.
    Int64,
    /// Floating point of half a byte, two in one element.
    Float4x2,
    /// A floating-point number of one byte.
    Float8,
    /// An IEEE number of two bytes.
    Float16,
    /// Two bytes with the exponent of four.
    BFloat16,
    /// An IEEE number of four bytes.
    Float32,
    /// An IEEE number of eight bytes.
    Float64,
    /// Two of two bytes.
    Complex32,
    /// Two of four bytes.
    Complex64,
    /// Two of eight bytes.
    Complex128,
}

use ElementType::*;

impl ElementType {
    /// Finds the type by the C++ type of a trace's `Input type`, or `c10::toString`'s name for it.
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

    /// Finds the type by the number of a `c10::ScalarType`, as operators take it.
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

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Bool | Int8 | Float8 | Float4x2 => 1,
            Int16 | Float16 | BFloat16 => 2,
            Int32 | Float32 | Complex32 => 4,
            Int64 | Float64 | Complex64 => 8,
            Complex128 => 16,
        }
    }

    /// The name of the type in `torch`.
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

    /// Truth values, whole numbers, floating point, complex numbers: a result has the highest.
    fn category(self) -> u8 {
        match self {
            Bool => 0,
            Int8 | Int16 | Int32 | Int64 => 1,
            Complex32 | Complex64 | Complex128 => 3,
            _ => 2,
        }
    }

    /// Whether it is a truth value or a whole number.
    pub fn is_whole(self) -> bool {
        self.category() < 2
    }

    /// The type of an operation on both (`torch.promote_types`). `small` are the types of tensors
    /// without dimensions, which count only by category.
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
