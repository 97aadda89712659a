//! Defines the macro `object`, which implements how a struct is printed as JSON.

/// Implements `Serialize` and the schema of a struct. `plain` fields are printed as they are,
/// `reading` fields through [`entry`](crate::base::reading::entry), `some` fields only if they have
/// a value, and `path` fields as text in which bytes that are not UTF-8 are replaced.
#[macro_export]
macro_rules! object {
    ($type:ident { $($kind:ident $field:ident),* $(,)? }) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = to.serialize_map(None)?;
                $( $crate::base::object::object!(@ $kind, map, stringify!($field), &self.$field); )*
                map.end()
            }
        }

        impl $crate::base::has_schema::HasSchema for $type {
            fn schema() -> serde_json::Value {
                let object = $crate::base::has_schema::ObjectSchema::default();
                $( let object = $crate::base::object::object!(@ schema $kind, object, $type, $field); )*
                object.finish()
            }
        }
    };
    (@ plain, $map:ident, $key:expr, $value:expr) => { $map.serialize_entry($key, $value)? };
    (@ reading, $map:ident, $key:expr, $value:expr) => {
        $crate::base::reading::entry(&mut $map, $key, $value)?
    };
    (@ some, $map:ident, $key:expr, $value:expr) => {
        if let Some(value) = $value {
            $map.serialize_entry($key, value)?
        }
    };
    (@ path, $map:ident, $key:expr, $value:expr) => {
        $map.serialize_entry($key, &$value.to_string_lossy())?
    };
    (@ schema path, $object:ident, $type:ident, $field:ident) => {
        $crate::base::object::object!(@ schema plain, $object, $type, $field)
    };
    (@ schema plain, $object:ident, $type:ident, $field:ident) => {
        $object.plain(
            stringify!($field),
            $crate::base::has_schema::plain_field(|of: &$type| &of.$field),
        )
    };
    (@ schema reading, $object:ident, $type:ident, $field:ident) => {
        $object.reading(
            stringify!($field),
            $crate::base::has_schema::reading_field(|of: &$type| &of.$field),
        )
    };
    (@ schema some, $object:ident, $type:ident, $field:ident) => {
        $object.some(
            stringify!($field),
            $crate::base::has_schema::some_field(|of: &$type| &of.$field),
        )
    };
}
pub use object;

#[cfg(test)]
mod tests {
    use crate::base::reading::Reading;

    struct Row {
        a: Reading<u64>,
        b: Reading<u64>,
        c: Reading<u64>,
        d: Option<u64>,
        e: u64,
    }
    object! { Row { reading a, reading b, reading c, some d, plain e } }

    #[test]
    fn unknown_is_null_beside_its_reason() {
        let row = Row {
            a: Reading::Is(1),
            b: Reading::Estimate { value: 2, error: 3 },
            c: Reading::missing("not asked"),
            d: None,
            e: 4,
        };
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            r#"{"a":1,"b":2,"error_b":3,"c":null,"c_missing":"not asked","e":4}"#
        );
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let sum = Reading::Is(1).plus(Reading::missing("x"));
        assert_eq!(sum, Reading::missing("x"));
        let sum = Reading::Is(1).plus(Reading::Estimate { value: 2, error: 5 });
        assert_eq!(sum, Reading::Estimate { value: 3, error: 5 });
    }
}
